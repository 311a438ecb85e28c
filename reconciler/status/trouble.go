package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	cmv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/outcome"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// findTrouble finds the first thing that keeps the cluster from its spec, and whether somebody must act. Fields that are
// fought over are none of it: they stand beside it, see findContest.
func findTrouble(
	s *snapshot.Cluster, plan decide.Plan, result *outcome.Result, now time.Time,
) (trouble decide.Block, stalled bool) {
	if len(s.Invalid) > 0 {
		return invalidSpec(s), true
	}
	var passing decide.Block
	for i := range result.Failures {
		if result.Failures[i].Class == outcome.ClassContested {
			continue
		}
		switch block, stalled := failureTrouble(s, &result.Failures[i]); {
		case stalled:
			return block, true
		case passing.Reason == "":
			passing = block
		}
	}
	for _, find := range []func() decide.Block{
		func() decide.Block { return storageClassTrouble(s) },
		func() decide.Block { return refusalTrouble(s, plan) },
		func() decide.Block { return claimTrouble(s) },
		func() decide.Block { return podTrouble(s, plan) },
		func() decide.Block { return certificateTrouble(s, now) },
		func() decide.Block { return waitingTrouble(s, now) },
	} {
		if trouble = find(); trouble.Reason != "" {
			return trouble, true
		}
	}
	if len(plan.Blocks) > 0 {
		return plan.Blocks[0], true
	}
	return passing, false
}

// unsettled words the first child that is not known to be as it shall be: it changed at the same moment, or it must go
// before it can come back. That passes by itself.
func unsettled(result *outcome.Result) string {
	if len(result.Failures) == 0 {
		return ""
	}
	if text := leaving(result); text != "" {
		return text
	}
	f := &result.Failures[0]
	return fmt.Sprintf("%s %q: was changed by somebody else at the same moment; it is tried again", f.Kind, f.Name)
}

// leaving words the first child that must go before it can come back: a finalizer of somebody's may keep it for ever.
func leaving(result *outcome.Result) string {
	for i := range result.Failures {
		if f := &result.Failures[i]; f.Class == outcome.ClassDeleting {
			return fmt.Sprintf("%s %q: %s", f.Kind, f.Name, f.Message)
		}
	}
	return ""
}

func joined(text, more string) string {
	if more == "" {
		return text
	}
	return text + "; " + more
}

// findContest finds the first child of which a field is fought over. The cluster may be well all the same.
func findContest(result *outcome.Result) decide.Block {
	for i := range result.Failures {
		if f := &result.Failures[i]; f.Class == outcome.ClassContested {
			return decide.Block{Reason: v1alpha1.ReasonContested, Message: fmt.Sprintf("%s %q: %s", f.Kind, f.Name, f.Message)}
		}
	}
	return decide.Block{}
}

// invalidSpec names paths and rules, never values.
func invalidSpec(s *snapshot.Cluster) decide.Block {
	lines := make([]string, 0, len(s.Invalid))
	for _, err := range s.Invalid {
		lines = append(lines, fmt.Sprintf("%s (%s)", err.Field, strings.ToLower(err.Type.String())))
	}
	slices.Sort(lines)
	return decide.Block{Reason: v1alpha1.ReasonInvalidSpec, Message: "the spec breaks rules that admission checks, " +
		"so nothing is changed until it is corrected: " + strings.Join(slices.Compact(lines), ", ")}
}

// failureTrouble words a child that could not be applied. What passes by itself is no trouble.
func failureTrouble(s *snapshot.Cluster, f *outcome.Failure) (block decide.Block, stalled bool) {
	object := fmt.Sprintf("%s %q: ", f.Kind, f.Name)
	switch f.Class {
	case outcome.ClassForeign:
		return decide.Block{Reason: v1alpha1.ReasonNameConflict, Message: object + f.Message}, true
	case outcome.ClassImmutable:
		return decide.Block{Reason: v1alpha1.ReasonNameConflict, Message: fmt.Sprintf("%sexists with another %s, which cannot be "+
			"changed: another program made it, so it is left as it is, with its pods and volumes; give this PostgresCluster "+
			"another name and move the data by dump and restore", object, f.Message)}, true
	case outcome.ClassQuota:
		return decide.Block{Reason: v1alpha1.ReasonQuotaExceeded, Message: object + f.Message}, true
	case outcome.ClassForbidden:
		if f.Kind == "PersistentVolumeClaim" && strings.Contains(f.Message, "resize") {
			return decide.Block{Reason: v1alpha1.ReasonResizeRefused, Message: object + f.Message +
				"; set spec.storage back to what is provisioned, or allow " + storageClassOf(s, f.Name) + " to expand volumes"}, true
		}
		return decide.Block{Reason: v1alpha1.ReasonForbidden, Message: object + f.Message}, true
	case outcome.ClassNoKind:
		if strings.HasSuffix(f.Group, "cert-manager.io") {
			return decide.Block{Reason: v1alpha1.ReasonCertManagerMissing, Message: fmt.Sprintf(
				"%sthe API server does not know the kind %s of %s: install cert-manager; the cluster goes on by itself then",
				object, f.Kind, f.Group)}, true
		}
		return decide.Block{Reason: v1alpha1.ReasonUnsupportedByServer, Message: object + f.Message}, true
	case outcome.ClassUnsupported:
		return decide.Block{Reason: v1alpha1.ReasonUnsupportedByServer, Message: object + f.Message}, true
	case outcome.ClassInvalid, outcome.ClassInternal:
		return decide.Block{Reason: v1alpha1.ReasonApplyFailed, Message: object + f.Message}, true
	case outcome.ClassTransient:
		message := object + "could not be applied; it is tried again"
		if f.Message != "" {
			message = object + "could not be applied: " + f.Message + "; it is tried again"
		}
		return decide.Block{Reason: v1alpha1.ReasonApplyFailed, Message: message}, false
	default:
		return decide.Block{}, false
	}
}

// storageClassOf names the StorageClass of a volume claim as far as it is known.
func storageClassOf(s *snapshot.Cluster, claim string) string {
	for _, instance := range s.Instances {
		if instance.Claim != nil && instance.Claim.Name == claim && instance.Claim.Spec.StorageClassName != nil {
			return fmt.Sprintf("StorageClass %q", *instance.Claim.Spec.StorageClassName)
		}
	}
	return "the StorageClass"
}

func storageClassTrouble(s *snapshot.Cluster) decide.Block {
	for _, instance := range s.Instances {
		claim := instance.Claim
		if claim == nil || claim.Status.Phase != corev1.ClaimPending || claim.Spec.VolumeName != "" {
			continue
		}
		switch class := claim.Spec.StorageClassName; {
		case class == nil && s.DefaultStorageClass == "":
			return decide.Block{Reason: v1alpha1.ReasonStorageClassMissing, Message: fmt.Sprintf(
				"PersistentVolumeClaim %q: no StorageClass is marked as the default: mark one, or create a new "+
					"PostgresCluster with spec.storageClassName", claim.Name)}
		case class != nil && *class != "" && !slices.Contains(s.StorageClasses, *class):
			return decide.Block{Reason: v1alpha1.ReasonStorageClassMissing, Message: fmt.Sprintf(
				"PersistentVolumeClaim %q: StorageClass %q does not exist: create it, or re-create the PostgresCluster with "+
					"one that exists", claim.Name, *class)}
		}
	}
	return decide.Block{}
}

// refusalTrouble words the first thing that other controllers could not create for us. What they said of an older
// template stands against the present spec no more.
func refusalTrouble(s *snapshot.Cluster, plan decide.Plan) decide.Block {
	i := slices.IndexFunc(s.Refusals, func(refusal snapshot.Refusal) bool {
		switch {
		case refusal.Instance != "":
			return !slices.ContainsFunc(s.Instances, func(instance snapshot.Instance) bool {
				return instance.Name == refusal.Instance && replaced(instance, plan)
			})
		case strings.HasPrefix(refusal.Object, "PersistentVolumeClaim"):
			return true
		}
		return !plan.Apply || rendered(s, plan)
	})
	if i < 0 {
		return decide.Block{}
	}
	refusal, reason := s.Refusals[i], v1alpha1.ReasonForbidden
	if refusal.Image != "" {
		return decide.Block{Reason: v1alpha1.ReasonImagePullFailed, Message: refusal.Object + ": " + unpullable(refusal.Image)}
	}
	switch {
	case strings.HasPrefix(refusal.Object, "PersistentVolumeClaim"):
		reason = v1alpha1.ReasonVolumeNotBound
	case outcome.QuotaText(refusal.Message):
		reason = v1alpha1.ReasonQuotaExceeded
	case !strings.Contains(refusal.Message, "forbidden"):
		reason = v1alpha1.ReasonInstanceFailed
	}
	return decide.Block{Reason: reason, Message: refusal.Object + ": " + refusal.Message}
}

// claimTrouble words volumes that are lost under an instance, or that could not be grown.
func claimTrouble(s *snapshot.Cluster) decide.Block {
	primary, _ := s.Primary()
	for _, instance := range s.Instances {
		if instance.Claim == nil {
			continue
		}
		if text := volumeLoss(instance, instance.Name == primary.Name); text != "" {
			return decide.Block{Reason: v1alpha1.ReasonVolumeLost, Message: fmt.Sprintf(
				"PersistentVolumeClaim %q: %s", instance.Claim.Name, text)}
		}
		for _, condition := range instance.Claim.Status.Conditions {
			if condition.Status == corev1.ConditionTrue && (condition.Type == corev1.PersistentVolumeClaimControllerResizeError ||
				condition.Type == corev1.PersistentVolumeClaimNodeResizeError) {
				return decide.Block{Reason: v1alpha1.ReasonResizeRefused, Message: fmt.Sprintf(
					"PersistentVolumeClaim %q: %s", instance.Claim.Name, condition.Message)}
			}
		}
	}
	return decide.Block{}
}

// volumeLoss says how an instance is about to lose its volume, or has lost it.
func volumeLoss(instance snapshot.Instance, primary bool) string {
	switch {
	case instance.Claim.Status.Phase == corev1.ClaimLost:
		return "its PersistentVolume is gone, and the data with it; delete the claim and its Pod, so that both are made anew"
	case instance.Claim.DeletionTimestamp.IsZero() || instance.Pod == nil || instance.Terminating():
		return ""
	case primary:
		return "is deleted as soon as its Pod stops, and the primary's data with it; before that, have another instance that " +
			"streams become the primary (annotation " + naming.AnnotationSwitchover + "), or dump the database"
	}
	return fmt.Sprintf("is deleted as soon as its Pod stops; delete Pod %q, so that the replica is made anew", instance.Pod.Name)
}

func certificateTrouble(s *snapshot.Cluster, now time.Time) decide.Block {
	for _, certificate := range s.Certificates {
		if late, _ := snapshot.CertificateLate(certificate, now); !late {
			continue
		}
		message := "cert-manager has not issued it yet: see whether cert-manager runs"
		for _, condition := range certificate.Status.Conditions {
			if condition.Type == cmv1.CertificateConditionReady && condition.Message != "" {
				message = "cert-manager has not issued it: " + condition.Message
			}
		}
		return decide.Block{
			Reason: v1alpha1.ReasonCertificateNotReady, Message: fmt.Sprintf("Certificate %q: %s", certificate.Name, message),
		}
	}
	return decide.Block{}
}
