// Package kube is an agent's access to the API server. Each call has its own
// time limit, and none waits for a client-side rate limit: a renewal of the
// Lease that is late is a failover.
package kube

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	discoveryv1ac "k8s.io/client-go/applyconfigurations/discovery/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/instance/agent"
)

// Pod is the pod that an agent runs in.
type Pod struct {
	Name, Namespace, IP string
	UID                 types.UID
}

// Client is an agent's access to the objects of its cluster.
type Client struct {
	clientset kubernetes.Interface
	// leases is for the Lease alone.
	leases  coordinationv1client.LeasesGetter
	cluster naming.Cluster
	pod     Pod
	lease   leaseStore
	own     ownStore
}

// callTimeout bounds every call but those for the Lease, whose callers set their own.
const callTimeout = 10 * time.Second

// New makes a client from the pod's service account.
func New(config *rest.Config, cluster naming.Cluster, pod Pod) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // No client-side rate limit.
	config.UserAgent = naming.FieldManagerInstance + "/" + pod.Name
	clientset, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// A connection that died without a word takes all requests of HTTP/2 with it until a ping notices, which is longer
	// than a Lease lasts. A request of HTTP/1.1 that was given up closes its own, and the next one makes another.
	config.NextProtos = []string{"http/1.1"}
	leases, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &Client{clientset: clientset, leases: leases, cluster: cluster, pod: pod}, nil
}

// Publish writes the agent's report and the label of its role, if it has one, onto its own pod.
func (c *Client) Publish(ctx context.Context, report, role string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	pod := corev1ac.Pod(c.pod.Name, c.pod.Namespace).
		// A pod of the same name that replaced this one is not ours to write.
		WithUID(c.pod.UID).
		WithAnnotations(map[string]string{naming.AnnotationReport: report})
	if role != "" {
		pod.WithLabels(map[string]string{naming.LabelRole: role})
	}
	written, err := c.clientset.CoreV1().Pods(c.pod.Namespace).Apply(ctx, pod, applyOptions())
	if err != nil || role != "" || written.Labels[naming.LabelRole] == "" {
		return err
	}
	// An apply only takes away what an earlier one of ours gave, not the label that somebody else put there.
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:null}}}`, c.pod.UID, naming.LabelRole)
	_, err = c.clientset.CoreV1().Pods(c.pod.Namespace).Patch(ctx, c.pod.Name, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: naming.FieldManagerInstance})
	return err
}

// applyOptions force: label, annotation and endpoints are the agents' alone.
func applyOptions() metav1.ApplyOptions {
	return metav1.ApplyOptions{FieldManager: naming.FieldManagerInstance, Force: true}
}

// Serve leads the -rw Service to this pod, which holds the Lease in a term; not ready, the Service refuses new
// connections at once. A policy of the API server refuses what comes in an earlier term than the last write.
func (c *Client) Serve(ctx context.Context, port int32, ready bool, term int32) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// The Service may lead to a successor already, which would not be told that this one led it away.
	node, err := c.node(ctx, !ready)
	if err != nil {
		return err
	}
	endpoint := discoveryv1ac.Endpoint().
		WithAddresses(c.pod.IP).
		WithConditions(discoveryv1ac.EndpointConditions().WithReady(ready).WithServing(ready).WithTerminating(!ready)).
		WithTargetRef(corev1ac.ObjectReference().
			WithKind("Pod").WithName(c.pod.Name).WithNamespace(c.pod.Namespace).WithUID(c.pod.UID))
	if node != "" {
		endpoint.WithNodeName(node)
	}
	slice := discoveryv1ac.EndpointSlice(c.cluster.EndpointSlice(), c.pod.Namespace).
		WithAnnotations(map[string]string{naming.AnnotationTerm: strconv.Itoa(int(term))}).
		WithEndpoints(endpoint).
		WithPorts(discoveryv1ac.EndpointPort().
			WithName(naming.PortPostgresName).WithPort(port).WithProtocol(corev1.ProtocolTCP))
	_, err = c.clientset.DiscoveryV1().EndpointSlices(c.pod.Namespace).Apply(ctx, slice, applyOptions())
	return err
}

// ErrReplaced tells that the agent's pod is gone, or was replaced by another one of its name.
var ErrReplaced = errors.New("this pod was deleted, and another one has its place")

// Current fails if the agent's pod is gone, or was replaced by another one of its name (ErrReplaced).
func (c *Client) Current(ctx context.Context) error {
	_, err := c.ownPod(ctx)
	return err
}

// Primary is where the -rw Service leads; its Instance is empty while it leads nowhere.
func (c *Client) Primary(ctx context.Context) (agent.Endpoint, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	slice, err := c.clientset.DiscoveryV1().EndpointSlices(c.pod.Namespace).
		Get(ctx, c.cluster.EndpointSlice(), metav1.GetOptions{})
	if err != nil {
		return agent.Endpoint{}, err
	}
	for _, e := range slice.Endpoints {
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		if !ready || e.TargetRef == nil || len(e.Addresses) == 0 {
			continue
		}
		for _, port := range slice.Ports {
			if port.Port != nil {
				return agent.Endpoint{Instance: e.TargetRef.Name, Address: e.Addresses[0], Port: *port.Port}, nil
			}
		}
	}
	return agent.Endpoint{}, nil
}
