package render

import (
	"fmt"
	"net/url"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/apis/v1alpha1"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

// secretTypeApp is the type by which the Service Binding specification finds the Secret's keys.
const secretTypeApp = "servicebinding.io/postgresql"

// Lease is the empty primary lock. Its content is the agents' only, so it is created and never applied.
func Lease(s *snapshot.Cluster) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: createdMeta(s, names(s).Lease())}
}

// AppSecret holds all that an application needs to connect.
func AppSecret(s *snapshot.Cluster, password string) *corev1.Secret {
	host := naming.ServiceHost(names(s).ServiceReadWrite(), s.Object.Namespace)
	port := strconv.Itoa(naming.PortPostgres)
	uri := url.URL{
		Scheme: "postgresql", User: url.UserPassword(naming.UserApp, password),
		Host: host + ":" + port, Path: "/" + naming.DatabaseApp, RawQuery: "sslmode=require",
	}
	query := url.Values{"user": {naming.UserApp}, "password": {password}, "sslmode": {"require"}}
	return secret(s, names(s).SecretApp(), secretTypeApp, map[string]string{
		"type": "postgresql", "provider": naming.ManagedBy,
		"host": host, "port": port, "dbname": naming.DatabaseApp,
		"username": naming.UserApp, "password": password,
		"uri":      uri.String(),
		"jdbc-uri": fmt.Sprintf("jdbc:postgresql://%s:%s/%s?%s", host, port, naming.DatabaseApp, query.Encode()),
		"pgpass":   fmt.Sprintf("%s:%s:%s:%s:%s\n", host, port, naming.DatabaseApp, naming.UserApp, password),
	})
}

// SuperuserSecret holds the superuser's password. It is of use only where a line of spec.hba names the superuser.
func SuperuserSecret(s *snapshot.Cluster, password string) *corev1.Secret {
	return secret(s, names(s).SecretSuperuser(), corev1.SecretTypeBasicAuth, map[string]string{
		corev1.BasicAuthUsernameKey: naming.UserSuperuser,
		corev1.BasicAuthPasswordKey: password,
	})
}

func secret(s *snapshot.Cluster, name string, kind corev1.SecretType, values map[string]string) *corev1.Secret {
	data := make(map[string][]byte, len(values))
	for key, value := range values {
		data[key] = []byte(value)
	}
	return &corev1.Secret{ObjectMeta: createdMeta(s, name), Type: kind, Data: data}
}

func createdMeta(s *snapshot.Cluster, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: s.Object.Namespace, Labels: labels(s),
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.Object, v1alpha1.PostgresClusterKind)},
	}
}
