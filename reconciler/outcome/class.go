package outcome

import (
	"regexp"
	"strings"
	"time"
)

// Class is the kind of a refusal, by what can be done about it.
type Class string

// The classes. The server answers 409 for four of them.
const (
	// ClassFieldConflict: another manager owns fields of ours with other values.
	ClassFieldConflict Class = "FieldConflict"
	// ClassContested: another manager keeps taking a field of ours.
	ClassContested Class = "Contested"
	// ClassForeign: an object of this name belongs to somebody else.
	ClassForeign Class = "Foreign"
	// ClassStale: the object changed, or exists although it must not.
	ClassStale Class = "Stale"
	// ClassGone: the object with this UID no longer exists.
	ClassGone Class = "Gone"
	// ClassReplaced: another object has the name now.
	ClassReplaced Class = "Replaced"
	// ClassDeleting: the object is being deleted.
	ClassDeleting Class = "Deleting"
	// ClassQuota: a ResourceQuota or LimitRange refuses the object.
	ClassQuota Class = "Quota"
	// ClassForbidden: rights or a policy are missing.
	ClassForbidden Class = "Forbidden"
	// ClassNamespaceTerminating: nothing can be created here any more.
	ClassNamespaceTerminating Class = "NamespaceTerminating"
	// ClassNoKind: the server does not know the kind.
	ClassNoKind Class = "NoKind"
	// ClassUnsupported: the server does not know a field.
	ClassUnsupported Class = "Unsupported"
	// ClassImmutable: the object exists with other values of fields that cannot be changed.
	ClassImmutable Class = "Immutable"
	// ClassInvalid: the server finds the object invalid.
	ClassInvalid Class = "Invalid"
	// ClassTransient: anything that may pass by itself.
	ClassTransient Class = "Transient"
	// ClassInternal: a bug of ours.
	ClassInternal Class = "Internal"
)

// Delay is how long to wait before trying again; zero for the work queue's back-off.
func (c Class) Delay() time.Duration {
	switch c {
	case ClassStale, ClassGone, ClassReplaced, ClassFieldConflict: // A conflict that is not solved was a race.
		return time.Second
	case ClassDeleting:
		return 2 * time.Second
	case ClassNoKind, ClassForeign: // The cache does not show when a foreign object goes.
		return 5 * time.Second
	case ClassQuota, ClassForbidden, ClassContested:
		return 15 * time.Second
	case ClassInvalid, ClassImmutable, ClassNamespaceTerminating:
		return time.Minute
	case ClassUnsupported, ClassInternal:
		return 5 * time.Minute
	default:
		return 0
	}
}

// limitRange matches the LimitRange admission plugin's texts, such as "maximum cpu usage per Container is 1".
var limitRange = regexp.MustCompile(`(minimum|maximum) \S+ usage per \S+ is|max limit to request ratio`)

// QuotaText says that a refusal is that of a ResourceQuota or a LimitRange.
func QuotaText(text string) bool {
	for _, words := range []string{"exceeded quota", "failed quota", "status unknown for quota", "insufficient quota"} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return LimitRangeText(text)
}

// LimitRangeText says that a refusal is that of a LimitRange, which it does not name.
func LimitRangeText(text string) bool { return limitRange.MatchString(text) }
