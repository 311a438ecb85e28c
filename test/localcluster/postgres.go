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
// PostgresCluster: user, password, database and CA of the Secret <cluster>-app,
// TLS with everything verified.
func (c *Cluster) Application(ctx context.Context, cluster types.NamespacedName, service string) (*pgx.ConnConfig, error) {
	secret := &corev1.Secret{}
	key := types.NamespacedName{Namespace: cluster.Namespace, Name: naming.Cluster(cluster.Name).SecretApp()}
	if err := c.Client.Get(ctx, key, secret); err != nil {
		return nil, err
	}
	host := naming.ServiceHost(service, cluster.Namespace)
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d sslmode=disable connect_timeout=5", host, naming.PortPostgres))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(secret.Data["ca.crt"]) {
		return nil, errors.New("no CA certificate under ca.crt in Secret " + key.String())
	}
	config.TLSConfig = &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}
	config.User, config.Password = string(secret.Data["username"]), string(secret.Data["password"])
	config.Database = string(secret.Data["dbname"])
	config.DialFunc, config.LookupFunc = c.Dial, c.Lookup
	return config, nil
}
