package apply

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/reconciler/outcome"
)

// Classify tells refusals of the server apart.
func Classify(err error) outcome.Class {
	switch {
	case err == nil:
		return ""
	case meta.IsNoMatchError(err), isUnknownResource(err):
		return outcome.ClassNoKind
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return outcome.ClassFieldConflict
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return outcome.ClassNamespaceTerminating
	case apierrors.IsConflict(err):
		return classifyConflict(err.Error())
	case apierrors.IsForbidden(err):
		if outcome.QuotaText(err.Error()) {
			return outcome.ClassQuota
		}
		return outcome.ClassForbidden
	case apierrors.IsInvalid(err):
		if hasCauseField(err, "metadata.uid") {
			return outcome.ClassReplaced
		}
		return outcome.ClassInvalid
	case apierrors.IsNotFound(err):
		return outcome.ClassGone
	case apierrors.IsInternalError(err) || isServerError(err):
		if strings.Contains(err.Error(), "field not declared in schema") {
			return outcome.ClassUnsupported
		}
		return outcome.ClassTransient
	case apierrors.IsBadRequest(err):
		return outcome.ClassInvalid
	default:
		return outcome.ClassTransient
	}
}

func classifyConflict(text string) outcome.Class {
	switch {
	case strings.Contains(text, "uid mismatch"):
		return outcome.ClassGone
	case strings.Contains(text, "UID in precondition"):
		return outcome.ClassReplaced
	case strings.Contains(text, "the object has been modified"):
		return outcome.ClassStale
	case strings.Contains(text, "quota"):
		return outcome.ClassTransient // The quota's own status was written at the same time.
	default:
		return outcome.ClassTransient
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
