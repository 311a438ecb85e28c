// Package api is a small client of the cluster's API server: readiness,
// server-side apply of manifests, and plain reads. The launcher links no larger
// one, so that starting it with go run stays fast.
package api

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/acme/pg-operator/test/cluster/internal/gateway"
	"github.com/acme/pg-operator/test/cluster/internal/layout"
	"github.com/acme/pg-operator/test/cluster/internal/pki"
)

// FieldManager owns what the launcher applies.
const FieldManager = "pg-operator-cluster"

// Client speaks as the cluster's administrator, from inside the namespace of
// the control plane.
type Client struct {
	base string
	http *http.Client
}

// New makes a client with the administrator's certificate.
func New(authority *pki.Authority) (*Client, error) {
	pair, err := tls.LoadX509KeyPair(authority.Cert("admin"), authority.Key("admin"))
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(authority.CA())
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	dialer := gateway.Dialer{Namespace: layout.ControlPlaneNamespace}
	return &Client{
		base: "https://" + net.JoinHostPort(layout.ControlPlaneIP, strconv.Itoa(layout.APIPort)),
		http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
			DialContext:       func(ctx context.Context, _, address string) (net.Conn, error) { return dialer.Dial(ctx, address) },
			TLSClientConfig:   &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS13},
			ForceAttemptHTTP2: true,
		}},
	}, nil
}

// StatusError is an answer other than 2xx.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string { return fmt.Sprintf("HTTP %d: %s", e.Code, e.Message) }

// Ready succeeds when the API server says that it is ready.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodGet, "/readyz", "", nil)
	return err
}

// Get reads an object or list.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	data, err := c.do(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Apply applies every document of a YAML text, forced: the launcher owns what
// it applies.
func (c *Client) Apply(ctx context.Context, manifests []byte) error {
	for document := range strings.SplitSeq("\n"+string(manifests), "\n---") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		path, err := pathOf([]byte(document))
		if err != nil {
			return err
		}
		query := "?force=true&fieldManager=" + FieldManager
		if _, err := c.do(ctx, http.MethodPatch, path+query, "application/apply-patch+yaml", []byte(document)); err != nil {
			return fmt.Errorf("apply %s: %w", path, err)
		}
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, &StatusError{Code: response.StatusCode, Message: messageOf(data)}
	}
	return data, nil
}

// messageOf takes the message out of a metav1.Status, or returns the text.
func messageOf(data []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(data, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(data))
}

// resources lists the kinds that the launcher applies.
var resources = map[string]struct {
	prefix, plural string
	namespaced     bool
}{
	"v1/Namespace":                                     {"/api/v1", "namespaces", false},
	"v1/Service":                                       {"/api/v1", "services", true},
	"discovery.k8s.io/v1/EndpointSlice":                {"/apis/discovery.k8s.io/v1", "endpointslices", true},
	"storage.k8s.io/v1/StorageClass":                   {"/apis/storage.k8s.io/v1", "storageclasses", false},
	"apiextensions.k8s.io/v1/CustomResourceDefinition": {"/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", false},
}

// pathOf returns the path of a manifest's object.
func pathOf(document []byte) (string, error) {
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
	}
	if err := yaml.Unmarshal(document, &object); err != nil {
		return "", err
	}
	resource, known := resources[object.APIVersion+"/"+object.Kind]
	if !known {
		return "", fmt.Errorf("manifest of %s %s %q: the launcher does not apply this kind", object.APIVersion, object.Kind, object.Metadata.Name)
	}
	if object.Metadata.Name == "" || resource.namespaced != (object.Metadata.Namespace != "") {
		return "", fmt.Errorf("manifest of %s: name %q, namespace %q", object.Kind, object.Metadata.Name, object.Metadata.Namespace)
	}
	path := resource.prefix
	if resource.namespaced {
		path += "/namespaces/" + object.Metadata.Namespace
	}
	return path + "/" + resource.plural + "/" + object.Metadata.Name, nil
}

// NodeReady succeeds when the node's Ready condition is True.
func (c *Client) NodeReady(ctx context.Context, name string) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := c.Get(ctx, "/api/v1/nodes/"+name, &node); err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Ready" {
			if condition.Status == "True" {
				return nil
			}
			return fmt.Errorf("node %s is not ready: %s", name, condition.Message)
		}
	}
	return fmt.Errorf("node %s has no Ready condition yet", name)
}
