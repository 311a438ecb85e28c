package apply

import (
	"errors"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	case ClassStale, ClassGone, ClassReplaced:
		return time.Second
	case ClassDeleting:
		return 2 * time.Second
	case ClassNoKind:
		return 5 * time.Second
	case ClassForeign, ClassQuota, ClassForbidden, ClassContested:
		return 15 * time.Second
	case ClassInvalid, ClassNamespaceTerminating:
		return time.Minute
	case ClassUnsupported, ClassInternal:
		return 5 * time.Minute
	default:
		return 0
	}
}

// Classify tells refusals of the server apart.
func Classify(err error) Class {
	switch {
	case err == nil:
		return ""
	case meta.IsNoMatchError(err), isUnknownResource(err):
		return ClassNoKind
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return ClassFieldConflict
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return ClassNamespaceTerminating
	case apierrors.IsConflict(err):
		return classifyConflict(err.Error())
	case apierrors.IsForbidden(err):
		if QuotaText(err.Error()) {
			return ClassQuota
		}
		return ClassForbidden
	case apierrors.IsInvalid(err):
		if hasCauseField(err, "metadata.uid") {
			return ClassReplaced
		}
		return ClassInvalid
	case apierrors.IsNotFound(err):
		return ClassGone
	case apierrors.IsInternalError(err) || isServerError(err):
		if strings.Contains(err.Error(), "field not declared in schema") {
			return ClassUnsupported
		}
		return ClassTransient
	case apierrors.IsBadRequest(err):
		return ClassInvalid
	default:
		return ClassTransient
	}
}

// limitRange matches the LimitRange admission plugin's texts, such as "maximum cpu usage per Container is 1".
var limitRange = regexp.MustCompile(`(minimum|maximum) \S+ usage per \S+ is|max limit to request ratio`)

// QuotaText says that a refusal is that of a ResourceQuota or a LimitRange.
func QuotaText(text string) bool {
	return strings.Contains(text, "exceeded quota") || strings.Contains(text, "failed quota") || limitRange.MatchString(text)
}

func classifyConflict(text string) Class {
	switch {
	case strings.Contains(text, "uid mismatch"):
		return ClassGone
	case strings.Contains(text, "UID in precondition"):
		return ClassReplaced
	case strings.Contains(text, "the object has been modified"):
		return ClassStale
	case strings.Contains(text, "quota"):
		return ClassTransient // The quota's own status was written at the same time.
	default:
		return ClassTransient
	}
}

// isUnknownResource says that the path itself does not exist: a kind whose CRD went after it was discovered.
func isUnknownResource(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsNotFound(err) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == "" ||
		strings.Contains(status.Status().Message, "the server could not find the requested resource")
}

func isServerError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 500
}

func hasCauseField(err error, field string) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == field {
			return true
		}
	}
	return false
}

// message is the server's own text without what wraps it.
func message(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Message
	}
	return err.Error()
}
