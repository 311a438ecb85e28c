package localcluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/acme/pg-operator/apis/naming"
)

// Application connects as an application does to one of the Services of a
// PostgresCluster: user, password and database of the Secret <cluster>-app, TLS
// with everything verified by the CA that stands beside the server's certificate.
func (c *Cluster) Application(ctx context.Context, cluster types.NamespacedName, service string) (*pgx.ConnConfig, error) {
	names := naming.Cluster(cluster.Name)
	secret, server := &corev1.Secret{}, &corev1.Secret{}
	for name, into := range map[string]*corev1.Secret{names.SecretApp(): secret, names.CertificateServer(): server} {
		if err := c.Client.Get(ctx, types.NamespacedName{Namespace: cluster.Namespace, Name: name}, into); err != nil {
			return nil, err
		}
	}
	host := naming.ServiceHost(service, cluster.Namespace)
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d sslmode=disable connect_timeout=5", host, naming.PortPostgres))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(server.Data["ca.crt"]) {
		return nil, errors.New("no CA certificate under ca.crt in Secret " + server.Name)
	}
	config.TLSConfig = &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
	config.User, config.Password = string(secret.Data["username"]), string(secret.Data["password"])
	config.Database = string(secret.Data["dbname"])
	config.DialFunc, config.LookupFunc = c.Dial, c.Lookup
	return config, nil
}
