package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/postgres"
)

// Bounds of spec.synchronous and spec.failover, and their texts, which the CRD has too, word for word.
const (
	minSuspicion, maxSuspicion = 500 * time.Millisecond, 30 * time.Second

	leaseDetail     = "must be whole seconds from 5s to 60s, such as 10s"
	suspicionDetail = "must be from 500ms to 30s, such as 1500ms"
	maxLagDetail    = "must be whole Ki, Mi or Gi up to 1024Gi, such as 16Mi"
	aloneDetail     = "cannot be quorum with one instance, which has no replica to confirm commits: set spec.replicas to at " +
		"least 2, or leave spec.synchronous out"
)

var (
	leaseForm     = regexp.MustCompile(`^([5-9]|[1-5][0-9]|60)s$`)
	suspicionForm = regexp.MustCompile(`^[0-9]{1,5}(ms|s|[.][0-9]{1,3}s)$`)
	maxLagForm    = regexp.MustCompile(`^(0|[1-9][0-9]{0,6})(Ki|Mi|Gi)$`)
	mostLag       = resource.MustParse("1024Gi")
)

// availabilityRules judge the fields one by one, and then what they are together.
var availabilityRules = []rule{
	{func(s *spec) any { return s.Synchronous }, validateModeSet},
	{func(s *spec) any { return synchronousOf(s).Mode }, validateMode},
	{func(s *spec) any { return synchronousOf(s).Durability }, validateDurability},
	{func(s *spec) any { return synchronousOf(s).Number }, validateNumber},
	{func(s *spec) any { return []any{s.Synchronous, replicasOf(s)} }, validateQuorum},
	{func(s *spec) any { return failoverOf(s).LeaseDuration }, validateLeaseDuration},
	{func(s *spec) any { return failoverOf(s).Suspicion }, validateSuspicion},
	{func(s *spec) any { return failoverOf(s).MaxLag }, validateMaxLag},
	{func(s *spec) any { return s.Failover }, validateSuspicionInLease},
}

func replicasOf(s *spec) int32 {
	if s.Replicas == nil {
		return v1alpha1.DefaultReplicas
	}
	return *s.Replicas
}

// failoverOf is spec.failover; nothing set when it is omitted.
func failoverOf(s *spec) v1alpha1.Failover {
	if s.Failover == nil {
		return v1alpha1.Failover{}
	}
	return *s.Failover
}

// synchronousOf is spec.synchronous; nothing set when it is omitted.
func synchronousOf(s *spec) v1alpha1.SynchronousReplication {
	if s.Synchronous == nil {
		return v1alpha1.SynchronousReplication{}
	}
	return *s.Synchronous
}

func validateModeSet(s *spec, path *field.Path) field.ErrorList {
	if s.Synchronous == nil || s.Synchronous.Mode != "" {
		return nil
	}
	return field.ErrorList{field.Required(path.Child("synchronous", "mode"), "must be off or quorum")}
}

func validateMode(s *spec, path *field.Path) field.ErrorList {
	return oneOf(path.Child("synchronous", "mode"), synchronousOf(s).Mode,
		v1alpha1.SynchronousModeOff, v1alpha1.SynchronousModeQuorum)
}

func validateDurability(s *spec, path *field.Path) field.ErrorList {
	return oneOf(path.Child("synchronous", "durability"), synchronousOf(s).Durability,
		v1alpha1.DurabilityPreferred, v1alpha1.DurabilityRequired)
}

func validateNumber(s *spec, path *field.Path) field.ErrorList {
	n := synchronousOf(s).Number
	if n == nil || *n >= 1 && *n < maxReplicas {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("synchronous", "number"), *n,
		fmt.Sprintf("must be from 1 to %d", maxReplicas-1))}
}

// validateQuorum wants as many replicas as have to confirm a commit.
func validateQuorum(s *spec, path *field.Path) field.ErrorList {
	path = path.Child("synchronous")
	number, replicas := s.SynchronousNumber(), replicasOf(s)
	switch {
	case s.Synchronous == nil || s.Synchronous.Mode != v1alpha1.SynchronousModeQuorum:
		return nil
	case replicas <= 1:
		return field.ErrorList{field.Invalid(path.Child("mode"), s.Synchronous.Mode, aloneDetail)}
	case number >= replicas:
		return field.ErrorList{field.Invalid(path.Child("number"), number, fmt.Sprintf(
			"must be less than spec.replicas, which counts the primary too: at most %d", min(replicas, maxReplicas)-1))}
	default:
		return nil
	}
}

func validateLeaseDuration(s *spec, path *field.Path) field.ErrorList {
	text := failoverOf(s).LeaseDuration
	if text == "" || leaseForm.MatchString(text) {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("failover", "leaseDuration"), text, leaseDetail)}
}

func validateSuspicion(s *spec, path *field.Path) field.ErrorList {
	text := failoverOf(s).Suspicion
	if text == "" || suspicionForm.MatchString(text) && s.Suspicion() >= minSuspicion && s.Suspicion() <= maxSuspicion {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("failover", "suspicion"), text, suspicionDetail)}
}

// validateSuspicionInLease compares the two if each has its form: a suspicion that comes after the end of the Lease is none.
func validateSuspicionInLease(s *spec, path *field.Path) field.ErrorList {
	f := failoverOf(s)
	if !suspicionForm.MatchString(f.Suspicion) || f.LeaseDuration != "" && !leaseForm.MatchString(f.LeaseDuration) ||
		s.Suspicion() < s.LeaseDuration(v1alpha1.DefaultLeaseDuration) {
		return nil
	}
	lease := f.LeaseDuration
	if lease == "" {
		lease = v1alpha1.DefaultLeaseDuration.String() + " when omitted"
	}
	return field.ErrorList{field.Invalid(path.Child("failover", "suspicion"), f.Suspicion,
		"must be less than spec.failover.leaseDuration, which is "+lease)}
}

func validateMaxLag(s *spec, path *field.Path) field.ErrorList {
	text := failoverOf(s).MaxLag
	if text == "" {
		return nil
	}
	if q, isQuantity := quantity(text); maxLagForm.MatchString(text) && isQuantity && q.Cmp(mostLag) <= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path.Child("failover", "maxLag"), text, maxLagDetail)}
}

// warnSynchronous tells when commits will wait, and of settings by which they do not wait as spec.synchronous says.
func warnSynchronous(s *spec) []string {
	var warnings []string
	if s.Synchronous != nil && s.Synchronous.Mode == v1alpha1.SynchronousModeOff &&
		(s.Synchronous.Number != nil || s.Synchronous.Durability != "") {
		warnings = append(warnings, "spec.synchronous: number and durability mean nothing while mode is off")
	}
	if s.SynchronousNumber() == 0 {
		return warnings
	}
	switch replicas := replicasOf(s); {
	case !s.SynchronousRequired():
	case replicas == 2:
		warnings = append(warnings,
			"spec.synchronous: writes wait while the only replica is down; use 3 replicas, or durability preferred")
	case s.SynchronousNumber() == replicas-1:
		warnings = append(warnings, "spec.synchronous: writes wait while any replica is down; lower number, or use durability preferred")
	}
	switch commit := strings.ToLower(lowerNames(s.Parameters)["synchronous_commit"]); {
	case slices.Contains([]string{"off", "false", "no", "0", "local"}, commit):
		warnings = append(warnings, fmt.Sprintf(
			"spec.parameters[synchronous_commit]: %s acknowledges commits that no replica has; a failover loses them", commit))
	case commit == "remote_write":
		warnings = append(warnings,
			"spec.parameters[synchronous_commit]: remote_write loses commits when a replica's node fails, too; use on")
	}
	return warnings
}

// warnKeptLog tells of a setting that lets a replica that is away fill the primary's volume.
func warnKeptLog(s *spec) string {
	gi, _ := storageGi(s.Storage)
	most, limited := postgres.KeptLog(judgedMajor(s), s.Parameters)
	switch half := gi << 30 / 2; {
	case !limited:
		return "spec.parameters[max_slot_wal_keep_size]: without a limit a replica that is away fills the primary's volume"
	case gi > 0 && most > half:
		return "spec.parameters[max_slot_wal_keep_size]: is over half of spec.storage; a replica that is away fills it"
	}
	return ""
}

func warnFailover(s *spec) string {
	if s.FailoverEnabled() {
		return ""
	}
	return "spec.failover.enabled: false leaves the database without a primary until the lost one is back"
}
