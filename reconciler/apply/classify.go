package apply

import (
	"errors"
	"regexp"
	"slices"
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
		if len(immutable(err)) > 0 {
			return outcome.ClassImmutable
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
	default:
		return outcome.ClassTransient // Such as a quota whose own status was written at the same time.
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

// immutableFields are the parts of a StatefulSet's spec that cannot be changed.
var immutableFields = []string{"spec.podManagementPolicy", "spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"}

// immutable are the fields of a StatefulSet that an apply would have had to change and could not. API servers before
// 1.37 name no field.
func immutable(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Details.Kind != "StatefulSet" {
		return nil
	}
	var fields []string
	for _, cause := range status.Status().Details.Causes {
		switch {
		case slices.Contains(immutableFields, cause.Field):
			fields = append(fields, cause.Field)
		case cause.Field == "spec" && cause.Type == metav1.CauseTypeForbidden:
			return immutableFields
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// sockets are the addresses in the text of a broken connection: its local port is another one each time.
var sockets = regexp.MustCompile(` ?[\w.:\[\]]+:\d+->`)

// message is the server's own text without what wraps it and without what changes from one try to the next. A call that
// no server has answered has no such text.
func message(err error, class outcome.Class) string {
	var status apierrors.APIStatus
	switch {
	case class == outcome.ClassImmutable:
		return strings.Join(immutable(err), ", ")
	case errors.As(err, &status):
		return sockets.ReplaceAllString(status.Status().Message, " ")
	case class == outcome.ClassTransient:
		return ""
	default:
		return err.Error()
	}
}
