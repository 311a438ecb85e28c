package rules

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/acme/pg-operator/postgres"
)

// validateHBA judges all lines when the list changes; when only the version does, those that the old one accepted.
// Lines are not repeated: an option may hold a password.
func validateHBA(old, s *spec, path *field.Path) field.ErrorList {
	if len(s.HBA) > postgres.MaxHBALines {
		if old != nil && slices.Equal(old.HBA, s.HBA) {
			return nil
		}
		return field.ErrorList{field.TooMany(path, len(s.HBA), postgres.MaxHBALines)}
	}
	var known []postgres.HBAProblem
	if old != nil && slices.Equal(old.HBA, s.HBA) {
		known = postgres.CheckHBA(judgedMajor(old), old.HBA)
	}
	var errs field.ErrorList
	for _, problem := range postgres.CheckHBA(judgedMajor(s), s.HBA) {
		if slices.ContainsFunc(known, func(p postgres.HBAProblem) bool { return p.Line == problem.Line }) {
			continue
		}
		at := path.Index(problem.Line)
		if problem.Forbidden {
			errs = append(errs, field.Forbidden(at, problem.Detail))
		} else {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, problem.Detail))
		}
	}
	return errs
}

// judgedMajor is the major version that PostgreSQL's own grammar is taken from: the newest if the spec's is unset, or
// refused by its own rule.
func judgedMajor(s *spec) string {
	majors := postgres.Majors()
	if slices.Contains(majors, s.Version) {
		return s.Version
	}
	return majors[len(majors)-1]
}

func warnHBA(s *spec) []string {
	var warnings []string
	for _, risk := range postgres.HBARisks(judgedMajor(s), s.HBA) {
		warnings = append(warnings, fmt.Sprintf("spec.hba[%d]: %s", risk.Line, risk.Detail))
	}
	return warnings
}
