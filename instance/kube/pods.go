package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/contract"
)

// ownStore keeps what was last read of the agent's own pod.
type ownStore struct {
	mu sync.Mutex
	// node that the pod runs on, which never changes; at is when that was asked, zero if it never was answered.
	node string
	at   time.Time
}

// ownLife is for how long it is believed that the agent's pod is still the one of its name.
const ownLife = 2 * time.Second

// ownPod is the agent's pod. It fails if that is gone, or was replaced by another one of its name (ErrReplaced).
func (c *Client) ownPod(ctx context.Context) (*corev1.Pod, error) {
	begun := time.Now()
	pod, err := c.clientset.CoreV1().Pods(c.pod.Namespace).Get(ctx, c.pod.Name, metav1.GetOptions{})
	if err == nil && pod.UID != c.pod.UID || apierrors.IsNotFound(err) {
		return nil, ErrReplaced
	}
	if err != nil {
		return nil, err
	}
	c.own.mu.Lock()
	defer c.own.mu.Unlock()
	c.own.node, c.own.at = pod.Spec.NodeName, begun
	return pod, nil
}

// node is the one that the agent's pod runs on. It fails as ownPod does, unless that was asked just now and it need not be
// sure: who was elected did so, and its clients wait.
func (c *Client) node(ctx context.Context, sure bool) (string, error) {
	c.own.mu.Lock()
	node, at := c.own.node, c.own.at
	c.own.mu.Unlock()
	if !sure && !at.IsZero() && time.Since(at) < ownLife {
		return node, nil
	}
	pod, err := c.ownPod(ctx)
	if err != nil {
		return "", err
	}
	return pod.Spec.NodeName, nil
}

// Unlabel takes the label of the primary off another instance's pod, unless that wrote it in the given term or later: an
// agent that died, or whose node is lost, cannot do so itself.
func (c *Client) Unlabel(ctx context.Context, instance string, term int32) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pods := c.clientset.CoreV1().Pods(c.pod.Namespace)
	pod, err := pods.Get(ctx, instance, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || pod.Labels[naming.LabelRole] != naming.RolePrimary {
		return err
	}
	// Label and report are one write.
	if report := contract.ParseReport(pod.Annotations[naming.AnnotationReport]); report != nil && report.Term >= term {
		return nil
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"labels":{%q:null}}}`,
		pod.UID, pod.ResourceVersion, naming.LabelRole)
	_, err = pods.Patch(ctx, instance, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: naming.FieldManagerInstance})
	return err
}
