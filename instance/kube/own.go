package kube

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
