package localcluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/apis/v1alpha1"
)

// Where config/default puts the operator.
const (
	OperatorNamespace  = "pg-operator-system"
	OperatorDeployment = "pg-operator"
	// operatorImage is the image in config/default, imageRepository what stands for it here.
	operatorImage   = "pg-operator"
	imageRepository = "registry.local/pg-operator"
)

// rolloutTimeout bounds a Deployment's roll, cert-manager's issuing and injection included.
const rolloutTimeout = 2 * time.Minute

// DeployOperator builds the operator from this checkout, loads its image and
// applies config/default, then waits until admission answers. The image's tag
// is a digest of the binary, so that a new binary rolls the Deployment and an
// unchanged one changes nothing.
func (c *Cluster) DeployOperator(ctx context.Context) error {
	reference, err := c.operator(ctx)
	if err != nil {
		return err
	}
	return c.withManifests(reference, func(overlay string) error {
		_, err := c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "--field-manager=local-cluster", "-k", overlay)
		if err != nil {
			return err
		}
		return c.operatorReady(ctx)
	})
}

// UninstallOperator does what `make undeploy` does: it deletes what config/default holds but the kinds and the policies
// that go with them, and so nothing of any PostgresCluster.
func (c *Cluster) UninstallOperator(ctx context.Context) error {
	return c.withManifests(imageRepository, func(overlay string) error {
		text, err := c.Kubectl(ctx, "kustomize", overlay)
		if err != nil {
			return err
		}
		text, err = withoutKinds(text)
		if err != nil {
			return err
		}
		_, err = c.KubectlInput(ctx, text, "delete", "--ignore-not-found", "--wait", "--timeout=2m", "-f", "-")
		return err
	})
}

// ScaleOperator sets the number of the operator's processes and waits until it is reached.
func (c *Cluster) ScaleOperator(ctx context.Context, replicas int) error {
	_, err := c.Kubectl(ctx, "scale", "deployment", OperatorDeployment, "-n", OperatorNamespace, fmt.Sprintf("--replicas=%d", replicas))
	if err != nil {
		return err
	}
	if replicas > 0 {
		return c.operatorReady(ctx)
	}
	_, err = Wait(ctx, rolloutTimeout, "no operator runs", func(ctx context.Context) (bool, string) {
		pods := c.names(ctx, "pods", OperatorNamespace)
		return len(pods) == 0, strings.Join(pods, " ")
	})
	return err
}

// OperatorReplicas is the number of the operator's processes that are asked for.
func (c *Cluster) OperatorReplicas(ctx context.Context) (int, error) {
	var deployment appsv1.Deployment
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: OperatorNamespace, Name: OperatorDeployment}, &deployment)
	if err != nil || deployment.Spec.Replicas == nil {
		return 1, err
	}
	return int(*deployment.Spec.Replicas), nil
}

// operator is the image of this checkout's operator on every node. It is built
// once, so that all tests of a run install the same one.
func (c *Cluster) operator(ctx context.Context) (reference string, err error) {
	c.building.Lock()
	defer c.building.Unlock()
	if c.built == "" {
		c.built, err = c.loadOperator(ctx)
	}
	return c.built, err
}

// loadOperator puts the image of this checkout's operator on every node and
// returns its reference. The archive stays, under one name: the launcher loads
// it on nodes that are added later.
func (c *Cluster) loadOperator(ctx context.Context) (string, error) {
	binary := filepath.Join(c.root, "bin", "pg-operator")
	if err := c.build(ctx, c.root, ".", binary); err != nil {
		return "", err
	}
	digest, err := digestOf(binary)
	if err != nil {
		return "", err
	}
	reference := imageRepository + ":" + digest
	archive, packed := filepath.Join(c.root, "bin", "pg-operator.tar"), filepath.Join(c.root, "bin", "pg-operator.tar.reference")
	if last, err := os.ReadFile(packed); err != nil || string(last) != reference {
		if err := c.pack(ctx, binary, reference, archive); err != nil {
			return "", err
		}
		if err := os.WriteFile(packed, []byte(reference), 0o644); err != nil {
			return "", err
		}
	}
	return reference, c.LoadImageArchive(ctx, archive)
}

func (c *Cluster) pack(ctx context.Context, binary, reference, archive string) error {
	packer := filepath.Join(c.root, "bin", "image")
	if err := c.build(ctx, filepath.Join(c.root, "test", "cluster"), "./cmd/image", packer); err != nil {
		return err
	}
	_, err := c.run(ctx, nil, packer, "--binary", binary, "--reference", reference, "--output", archive)
	return err
}

// withManifests runs use with a directory that kustomize turns into
// config/default with the given image.
func (c *Cluster) withManifests(reference string, use func(overlay string) error) error {
	dir, err := os.MkdirTemp("", "pg-operator-overlay-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	base, err := filepath.Rel(dir, filepath.Join(c.root, "config", "default"))
	if err != nil {
		return err
	}
	name, tag, _ := strings.Cut(reference, ":")
	overlay, err := yaml.Marshal(map[string]any{
		"resources": []string{base},
		"images":    []map[string]string{{"name": operatorImage, "newName": name, "newTag": tag}},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), overlay, 0o644); err != nil {
		return err
	}
	return use(dir)
}

// operatorReady waits for the Deployment's rollout, until one of its processes
// leads (those of an earlier rollout hand over while they end), and until the
// API server reaches the webhooks with certificates it trusts.
func (c *Cluster) operatorReady(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "rollout", "status", "deployment", OperatorDeployment, "-n", OperatorNamespace, "--timeout="+rolloutTimeout.String())
	if err != nil {
		return err
	}
	_, err = Wait(ctx, rolloutTimeout, "the operator's webhooks answer", func(ctx context.Context) (bool, string) {
		probe := &v1alpha1.PostgresCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "admission-probe"}}
		refusal := c.Client.Create(ctx, probe, client.DryRunAll)
		if refusal != nil {
			return false, refusal.Error()
		}
		return probe.Spec.Version != "", "an omitted spec.version is not filled in"
	})
	if err != nil {
		return err
	}
	_, err = Wait(ctx, rolloutTimeout, "an operator leads", c.leads)
	return err
}

// leads tells whether the leader is a process that stays.
func (c *Cluster) leads(ctx context.Context) (done bool, seen string) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: OperatorNamespace, Name: OperatorDeployment}
	if err := c.Client.Get(ctx, key, lease); err != nil {
		return false, err.Error()
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	// The identity is the pod's name, "_" and something random.
	key.Name, _, _ = strings.Cut(holder, "_")
	pod := &corev1.Pod{}
	if err := c.Client.Get(ctx, key, pod); err != nil {
		return false, fmt.Sprintf("the leader is %q: %v", holder, err)
	}
	return pod.DeletionTimestamp == nil, "the leader is " + holder + ", which ends"
}

// withoutKinds drops CustomResourceDefinitions and what belongs to them from a stream of manifests.
func withoutKinds(manifests string) (string, error) {
	var kept strings.Builder
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		var object unstructured.Unstructured
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return kept.String(), nil
		}
		if err != nil {
			return "", fmt.Errorf("manifests of config/default: %w", err)
		}
		if object.Object == nil || object.GetKind() == "CustomResourceDefinition" ||
			strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") {
			continue
		}
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return "", err
		}
		kept.WriteString("---\n")
		kept.Write(text)
	}
}

// digestOf is the beginning of a file's SHA-256, fit for an image tag.
func digestOf(path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])[:16], nil
}
