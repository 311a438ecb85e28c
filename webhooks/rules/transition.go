package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// validateTransition judges a change by what was before. The CRD has the same rules in CEL, with the same texts.
func validateTransition(old, cluster *v1alpha1.PostgresCluster) field.ErrorList {
	path := field.NewPath("spec")
	errs := changeStorageClass(&old.Spec, &cluster.Spec, path.Child("storageClassName"))
	errs = append(errs, changeVersion(old, cluster, path.Child("version"))...)
	return append(errs, changeStorage(old, cluster, path.Child("storage"))...)
}

func changeStorageClass(old, s *spec, path *field.Path) field.ErrorList {
	before, now := old.StorageClassName, s.StorageClassName
	if before == nil && now == nil || before != nil && now != nil && *before == *now {
		return nil
	}
	advice := "leave it out"
	if before != nil {
		advice = fmt.Sprintf("keep %q", *before)
	}
	return field.ErrorList{field.Forbidden(path,
		"cannot be changed, set or removed later, because volumes stay in their StorageClass: "+advice)}
}

// changeVersion lets a version go up if the user opted in, and back to what the data still is. Major versions have
// two digits, so that they are ordered as text.
func changeVersion(old, cluster *v1alpha1.PostgresCluster, path *field.Path) field.ErrorList {
	before, now, ofData := old.Spec.Version, cluster.Spec.Version, old.Status.Version
	switch {
	case now == "" && before == "":
		return nil
	case now == "":
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("cannot be removed once it is set: keep %q", before))}
	case before == "":
		before = ofData
	}
	switch {
	case before == "" || now == before || now == ofData:
		return nil
	case now < before:
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf(
			"cannot go down to %s: PostgreSQL does not read the data of a newer major version; keep %q", now, before))}
	case cluster.Spec.UpgradePolicy != v1alpha1.UpgradePolicyAllowMajor:
		return field.ErrorList{field.Forbidden(path, fmt.Sprintf("cannot change from %s to %s: this is a major upgrade; "+
			"take a backup, then set spec.upgradePolicy to AllowMajor in the same change", before, now))}
	default:
		return nil
	}
}

// changeStorage lets storage grow, and go back to what is provisioned after a growth that the StorageClass refused.
func changeStorage(old, cluster *v1alpha1.PostgresCluster, path *field.Path) field.ErrorList {
	before, now := old.Spec.Storage, cluster.Spec.Storage
	switch {
	case now == before:
		return nil
	case now == "":
		return field.ErrorList{field.Forbidden(path,
			fmt.Sprintf("cannot be removed once it is set: keep %s or set more", before))}
	case !storageForm.MatchString(now):
		return nil // Its form is refused.
	}
	wanted := resource.MustParse(now)
	provisioned, isProvisioned := quantity(old.Status.ProvisionedStorage)
	if isProvisioned && wanted.Cmp(provisioned) >= 0 {
		return nil
	}
	if was, isQuantity := quantity(before); before != "" && (!isQuantity || wanted.Cmp(was) >= 0) ||
		before == "" && !isProvisioned {
		return nil
	}
	least := before
	if old.Status.ProvisionedStorage != "" {
		least = old.Status.ProvisionedStorage + ", which is provisioned"
	}
	return field.ErrorList{field.Forbidden(path,
		fmt.Sprintf("cannot shrink to %s: volumes only grow; the least it can be is %s", now, least))}
}

func quantity(text string) (resource.Quantity, bool) {
	q, err := resource.ParseQuantity(text)
	return q, err == nil
}
