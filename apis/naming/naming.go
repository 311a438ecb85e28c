// Package naming holds every derived name, label, annotation, port and field
// manager of pg-operator. Nothing else spells one.
package naming

import (
	"strconv"
	"strings"
)

// Field managers. A name is a durable API: renaming one orphans what it owns.
const (
	// FieldManager owns every rendered child and the status of a PostgresCluster.
	FieldManager = "pg-operator"
	// FieldManagerInstance owns what an agent writes: its own pod's labels and annotations, the -rw EndpointSlice.
	FieldManagerInstance = "pg-operator-instance"
	// FieldManagerAuthority owns the caBundle of the webhooks where the operator signs its own certificate.
	FieldManagerAuthority = "pg-operator-webhook-ca"
)

var (
	// FormerFieldManagers were FieldManager in the past: children that still name one are migrated. Add a name here
	// whenever FieldManager changes, and never remove one.
	FormerFieldManagers = []string{"pgc-operator"}
	// FirstFieldManagers are under which the children of a PostgresCluster may first have been written by an operator
	// that used update or client-side apply: the names of a program that was given none, of its binary as kubebuilder
	// and operator-sdk call it, of kubectl, and of nobody in particular.
	FirstFieldManagers = []string{
		"manager", "main", "operator", "Go-http-client", "kubectl-client-side-apply", "before-first-apply",
	}
)

// Labels.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelCluster names the PostgresCluster an object belongs to.
	LabelCluster = "db.example.com/cluster"
	// LabelRole is written by an agent on its own pod: RolePrimary or RoleReplica. Replicas that do not stream have no
	// role label, and so are in no Service. A new primary takes RolePrimary off the former one's pod.
	LabelRole = "db.example.com/role"

	// AppName is the value of LabelName on every object of a cluster.
	AppName = "postgresql"
	// ManagedBy is the value of LabelManagedBy on every object of ours.
	ManagedBy = "pg-operator"

	RolePrimary = "primary"
	RoleReplica = "replica"
	// RoleNobody is a value of LabelRole that no pod has.
	RoleNobody = "nobody"
)

// Annotations.
const (
	// AnnotationReport on an instance's pod is the agent's contract.Report as JSON.
	AnnotationReport = "db.example.com/report"
	// AnnotationSystemID on a volume claim is the system identifier of the data in it.
	AnnotationSystemID = "db.example.com/system-id"
	// AnnotationDataVersion on a volume claim is the major version of the data in it.
	AnnotationDataVersion = "db.example.com/data-version"
	// AnnotationGeneration on a StatefulSet is the generation of the PostgresCluster it was rendered from.
	AnnotationGeneration = "db.example.com/cluster-generation"
	// AnnotationVolumes on a StatefulSet is what the PostgresCluster that it was rendered from says of its volumes, as JSON.
	AnnotationVolumes = "db.example.com/cluster-volumes"
	// AnnotationTemplateHash on a pod is the hash of the pod template it was made from.
	AnnotationTemplateHash = "db.example.com/template-hash"
	// AnnotationImage on a StatefulSet is PostgreSQL's image as it was rendered: a policy may have changed the template's.
	AnnotationImage = "db.example.com/image"

	// AnnotationSwitchover on a PostgresCluster asks once for another primary: SwitchoverAny or the name of an instance,
	// then perhaps SwitchoverMark and anything that makes it a new request.
	AnnotationSwitchover = "db.example.com/switchover"
	// AnnotationTerm on the EndpointSlice of the -rw Service is the term of who wrote it. It never goes down.
	AnnotationTerm = "db.example.com/term"

	// The annotations of the Lease, written by its holder only.
	AnnotationLeaseSystemID = "db.example.com/system-id"
	AnnotationLeaseTimeline = "db.example.com/timeline"
	// The newest timeline that any holder may have begun, known before it is begun.
	AnnotationLeaseNewest   = "db.example.com/newest-timeline"
	AnnotationLeaseWALLSN   = "db.example.com/wal-lsn"
	AnnotationLeaseMembers  = "db.example.com/members"
	AnnotationLeaseReleased = "db.example.com/released-lsn"
	// Who gave the Lease up after all its processes had gone; without it an empty holder was cleared by somebody else.
	AnnotationLeaseReleasedBy = "db.example.com/released-by"
	AnnotationLeaseSuccessor  = "db.example.com/successor"
	AnnotationLeaseSync       = "db.example.com/sync"
	AnnotationLeaseFailover   = "db.example.com/last-failover"
)

// The words of AnnotationSwitchover.
const (
	SwitchoverAny  = "any"
	SwitchoverMark = "@"
)

// Ports and their names.
const (
	PortPostgres     = 5432
	PortPostgresName = "pg"
	PortAgent        = 8443
	PortAgentName    = "agent"
	PortProbe        = 8080
	PortProbeName    = "probe"
)

// Containers, volumes and paths inside an instance's pod.
const (
	ContainerPostgres = "postgres"
	ContainerInstall  = "install-agent"
	VolumeData        = "data"
	VolumeAgent       = "agent"
	VolumeRun         = "run"
	VolumeTmp         = "tmp"
	VolumeShm         = "shm"
	VolumeServerTLS   = "server-tls"
	VolumeClientTLS   = "replication-tls"
	VolumeAppUser     = "app-credentials"
	VolumeSuperuser   = "superuser-credentials"

	// PathData is the mount of the data volume; PGDATA is PathPGData below it, because a file system's root
	// cannot be an empty directory of PostgreSQL's own (lost+found, ownership).
	PathData      = "/var/lib/postgresql/data"
	PathPGData    = PathData + "/pgdata"
	PathAgentBin  = "/agent/pg-operator"
	PathAgentDir  = "/agent"
	PathRun       = "/var/run/postgresql"
	PathTmp       = "/tmp"
	PathShm       = "/dev/shm"
	PathServerTLS = "/etc/pg-operator/server-tls"
	PathClientTLS = "/etc/pg-operator/replication-tls"
	PathAppUser   = "/etc/pg-operator/app"
	PathSuperuser = "/etc/pg-operator/superuser"
)

// Names inside the database and in certificates.
const (
	// DatabaseApp is the database made for the application, owned by UserApp.
	DatabaseApp = "app"
	UserApp     = "app"
	// UserSuperuser is the superuser that initdb makes.
	UserSuperuser = "postgres"
	// UserReplication streams and rewinds; it authenticates by a certificate whose common name it is. PostgreSQL
	// reserves names that begin with pg_.
	UserReplication = "pgoperator_replication"
)

// ConfigMapKey is the key of the ConfigMap of a cluster under which contract.Config stands as JSON.
const ConfigMapKey = "config.json"

// MaxClusterName is the longest name of a PostgresCluster, in bytes: pods are named <cluster>-<ordinal>, revisions
// <cluster>-<10 characters>, and both stand in labels of at most 63 bytes.
const MaxClusterName = 50

// Cluster derives the names of one cluster's objects from its name.
type Cluster string

func (c Cluster) StatefulSet() string        { return string(c) }
func (c Cluster) Lease() string              { return string(c) }
func (c Cluster) ServiceAccount() string     { return string(c) }
func (c Cluster) Role() string               { return string(c) }
func (c Cluster) RoleBinding() string        { return string(c) }
func (c Cluster) PDB() string                { return string(c) }
func (c Cluster) NetworkPolicy() string      { return string(c) }
func (c Cluster) ServiceHeadless() string    { return string(c) }
func (c Cluster) ServiceReadWrite() string   { return string(c) + "-rw" }
func (c Cluster) ServiceReadOnly() string    { return string(c) + "-ro" }
func (c Cluster) ServiceRead() string        { return string(c) + "-r" }
func (c Cluster) EndpointSlice() string      { return string(c) + "-rw" }
func (c Cluster) ConfigMap() string          { return string(c) + "-instance" }
func (c Cluster) SecretApp() string          { return string(c) + "-app" }
func (c Cluster) SecretSuperuser() string    { return string(c) + "-superuser" }
func (c Cluster) IssuerSelfSigned() string   { return string(c) + "-selfsigned" }
func (c Cluster) IssuerCA() string           { return string(c) + "-ca" }
func (c Cluster) CertificateCA() string      { return string(c) + "-ca" }
func (c Cluster) CertificateServer() string  { return string(c) + "-server" }
func (c Cluster) CertificateReplica() string { return string(c) + "-replication" }

// Instance is the name of the instance, and of its pod, with an ordinal.
func (c Cluster) Instance(ordinal int32) string {
	return string(c) + "-" + strconv.Itoa(int(ordinal))
}

// PVC is the name of the volume claim of the instance with an ordinal.
func (c Cluster) PVC(ordinal int32) string {
	return VolumeData + "-" + c.Instance(ordinal)
}

// Ordinal is the ordinal in the name of one of the cluster's instances.
func (c Cluster) Ordinal(instance string) (ordinal int32, ok bool) {
	digits, found := strings.CutPrefix(instance, string(c)+"-")
	n, err := strconv.ParseInt(digits, 10, 32)
	if !found || err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return 0, false
	}
	return int32(n), true
}

// PVCOrdinal is the ordinal in the name of one of the cluster's volume claims.
func (c Cluster) PVCOrdinal(claim string) (ordinal int32, ok bool) {
	instance, found := strings.CutPrefix(claim, VolumeData+"-")
	if !found {
		return 0, false
	}
	return c.Ordinal(instance)
}

// InstanceHost is the DNS name of an instance inside the Kubernetes cluster.
func (c Cluster) InstanceHost(instance, namespace string) string {
	return instance + "." + c.ServiceHeadless() + "." + namespace + ".svc"
}

// ServiceHost is the DNS name of a Service inside the Kubernetes cluster.
func ServiceHost(service, namespace string) string { return service + "." + namespace + ".svc" }

// SelectorLabels select the instances' pods of a cluster. They are immutable in a StatefulSet.
func (c Cluster) SelectorLabels() map[string]string {
	return map[string]string{LabelName: AppName, LabelCluster: string(c)}
}

// Labels are on every object of a cluster.
func (c Cluster) Labels() map[string]string {
	return map[string]string{
		LabelName: AppName, LabelInstance: string(c), LabelManagedBy: ManagedBy, LabelCluster: string(c),
	}
}
