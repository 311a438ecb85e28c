package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// CRD is the generated definition of PostgresClusters.
func (p *ControlPlane) CRD(t testing.TB) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	path := filepath.Join(p.Repository, "config", "crd", "bases", "db.example.com_postgresclusters.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, crd); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return crd
}

// WithoutRules is a definition that knows types and defaults but judges no value.
func WithoutRules(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd = crd.DeepCopy()
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	spec := schema.Properties["spec"]
	relax(&spec)
	// Of our own fields; Kubernetes' own lists need their keys.
	synchronous := spec.Properties["synchronous"]
	synchronous.Required = nil
	spec.Properties["synchronous"] = synchronous
	schema.Properties["spec"] = spec
	schema.XValidations = nil
	return crd
}

func relax(s *apiextensionsv1.JSONSchemaProps) {
	s.XValidations, s.Enum, s.Pattern = nil, nil, ""
	s.Minimum, s.Maximum, s.MinLength, s.MaxLength = nil, nil, nil, nil
	s.MinItems, s.MaxItems, s.MinProperties, s.MaxProperties = nil, nil, nil, nil
	for name, property := range s.Properties {
		relax(&property)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		relax(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		relax(s.AdditionalProperties.Schema)
	}
}

// InstallCRD replaces the definition of PostgresClusters and waits until the API server goes by it. The test's end
// restores the generated one. Tests that use it cannot run beside others.
func (p *ControlPlane) InstallCRD(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	// The published schema's description shows which definition is in force.
	marked := crd.DeepCopy()
	marked.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "Variant for " + t.Name()
	p.replaceCRD(t, marked)
	t.Cleanup(func() { p.replaceCRD(t, p.CRD(t)) })
}

func (p *ControlPlane) replaceCRD(t testing.TB, crd *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	// Also at the test's end, when its context is done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), startTimeout)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		live := &apiextensionsv1.CustomResourceDefinition{}
		if err := p.Client.Get(ctx, client.ObjectKeyFromObject(crd), live); err != nil {
			return err
		}
		live.Spec = crd.Spec
		return p.Client.Update(ctx, live)
	})
	if err != nil {
		t.Fatal(err)
	}
	description := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description
	if err := poll(ctx, func(ctx context.Context) error { return p.publishes(ctx, description) }); err != nil {
		t.Fatal(err)
	}
}

// publishes returns nil when the API server publishes a definition of PostgresClusters with that description.
func (p *ControlPlane) publishes(ctx context.Context, description string) error {
	config, err := discovery.NewDiscoveryClientForConfig(p.Config)
	if err != nil {
		return err
	}
	text, err := config.RESTClient().Get().AbsPath("/openapi/v3/apis", v1alpha1.Group, v1alpha1.SchemeGroupVersion.Version).
		DoRaw(ctx)
	if err != nil {
		return err
	}
	var published struct {
		Components struct {
			Schemas map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(text, &published); err != nil {
		return err
	}
	for name, schema := range published.Components.Schemas {
		if strings.HasSuffix(name, "."+v1alpha1.PostgresClusterKind.Kind) && schema.Description == description {
			return nil
		}
	}
	return fmt.Errorf("the definition %q is not published", description)
}
