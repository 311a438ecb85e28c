package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PostgresCluster is one PostgreSQL database cluster: a primary that takes
// writes and replicas that stream from it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=pgc,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Storage",type=string,JSONPath=`.spec.storage`
// +kubebuilder:printcolumn:name="Primary",type=string,JSONPath=`.status.primary`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() || (self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",optionalOldSelf=true,fieldPath=".metadata",message="name must be at most 50 lower-case letters, digits and '-', start with a letter and not end with '-', because pods, Services and Secrets are named after it"
// +kubebuilder:validation:XValidation:rule="has(self.spec.version) || !has(oldSelf.spec.version)",fieldPath=".spec.version",reason=FieldValueForbidden,message="cannot be removed once it is set",messageExpression="'cannot be removed once it is set: keep \"' + oldSelf.spec.version + '\"'"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.version) || (has(oldSelf.spec.version) ? self.spec.version >= oldSelf.spec.version : !has(self.status) || !has(self.status.version) || self.spec.version >= self.status.version) || (has(self.status) && has(self.status.version) && self.spec.version == self.status.version)",fieldPath=".spec.version",reason=FieldValueForbidden,message="cannot go down: PostgreSQL does not read the data of a newer major version",messageExpression="'cannot go down to ' + self.spec.version + ': PostgreSQL does not read the data of a newer major version; keep \"' + (has(oldSelf.spec.version) ? oldSelf.spec.version : self.status.version) + '\"'"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.version) || (has(oldSelf.spec.version) ? self.spec.version <= oldSelf.spec.version : !has(self.status) || !has(self.status.version) || self.spec.version <= self.status.version) || (has(self.status) && has(self.status.version) && self.spec.version == self.status.version) || (has(self.spec.upgradePolicy) && self.spec.upgradePolicy == 'AllowMajor')",fieldPath=".spec.version",reason=FieldValueForbidden,message="cannot change: this is a major upgrade; take a backup, then set spec.upgradePolicy to AllowMajor in the same change",messageExpression="'cannot change from ' + (has(oldSelf.spec.version) ? oldSelf.spec.version : self.status.version) + ' to ' + self.spec.version + ': this is a major upgrade; take a backup, then set spec.upgradePolicy to AllowMajor in the same change'"
// +kubebuilder:validation:XValidation:rule="has(self.spec.storage) || !has(oldSelf.spec.storage)",fieldPath=".spec.storage",reason=FieldValueForbidden,message="cannot be removed once it is set",messageExpression="'cannot be removed once it is set: keep ' + oldSelf.spec.storage + ' or set more'"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.storage) || !self.spec.storage.matches('^[1-9][0-9]{0,4}Gi$') || (has(oldSelf.spec.storage) ? self.spec.storage == oldSelf.spec.storage || !isQuantity(oldSelf.spec.storage) || quantity(self.spec.storage).compareTo(quantity(oldSelf.spec.storage)) >= 0 : !has(self.status) || !has(self.status.provisionedStorage) || !isQuantity(self.status.provisionedStorage)) || (has(self.status) && has(self.status.provisionedStorage) && isQuantity(self.status.provisionedStorage) && quantity(self.spec.storage).compareTo(quantity(self.status.provisionedStorage)) >= 0)",fieldPath=".spec.storage",reason=FieldValueForbidden,message="cannot shrink: volumes only grow",messageExpression="'cannot shrink to ' + self.spec.storage + ': volumes only grow; the least it can be is ' + (has(self.status) && has(self.status.provisionedStorage) && self.status.provisionedStorage.size() > 0 ? self.status.provisionedStorage + ', which is provisioned' : oldSelf.spec.storage)"
type PostgresCluster struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the metadata of every Kubernetes object.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want.
	// +optional
	// +default={}
	Spec PostgresClusterSpec `json:"spec,omitempty,omitzero"`
	// status is what was last seen. Before the operator has seen anything it is of no generation, so that nobody takes a
	// new cluster for one that is as it shall be.
	// +optional
	// +default={"observedGeneration":-1}
	Status PostgresClusterStatus `json:"status,omitempty,omitzero"`
}

// PostgresClusterList is a list of PostgresClusters.
//
// +kubebuilder:object:root=true
type PostgresClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PostgresCluster `json:"items"`
}

// DeletionPolicy says what happens to the volumes when the PostgresCluster is deleted.
//
// +kubebuilder:validation:Enum=Retain;Delete
type DeletionPolicy string

const (
	// DeletionPolicyRetain keeps the volumes; a PostgresCluster re-created under the same name adopts them.
	DeletionPolicyRetain DeletionPolicy = "Retain"
	// DeletionPolicyDelete deletes the volumes, and with them the data.
	DeletionPolicyDelete DeletionPolicy = "Delete"
)

// UpgradePolicy says which changes of spec.version are allowed.
//
// +kubebuilder:validation:Enum=MinorOnly;AllowMajor
type UpgradePolicy string

const (
	// UpgradePolicyMinorOnly refuses every change of spec.version.
	UpgradePolicyMinorOnly UpgradePolicy = "MinorOnly"
	// UpgradePolicyAllowMajor lets spec.version go up.
	UpgradePolicyAllowMajor UpgradePolicy = "AllowMajor"
)

// PostgresClusterSpec is what a user wants of a cluster.
//
// The settings that would endanger data or let somebody in are refused here too, so that no webhook is needed for it; all
// others are checked by the operator, which knows them. A test compares the texts.
//
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",fieldPath=".storageClassName",reason=FieldValueForbidden,message="cannot be changed, set or removed later: volumes stay in their StorageClass",messageExpression="'cannot be changed, set or removed later, because volumes stay in their StorageClass: ' + (has(oldSelf.storageClassName) ? 'keep \"' + oldSelf.storageClassName + '\"' : 'leave it out')"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('allow_alter_system' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'allow_alter_system' in oldSelf.value().parameters && oldSelf.value().parameters['allow_alter_system'] == self.parameters['allow_alter_system']",optionalOldSelf=true,fieldPath=".parameters['allow_alter_system']",message="cannot be set: settings are changed in the spec; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('archive_command' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'archive_command' in oldSelf.value().parameters && oldSelf.value().parameters['archive_command'] == self.parameters['archive_command']",optionalOldSelf=true,fieldPath=".parameters['archive_command']",message="cannot be set: the operator sets up archiving itself; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('archive_mode' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'archive_mode' in oldSelf.value().parameters && oldSelf.value().parameters['archive_mode'] == self.parameters['archive_mode']",optionalOldSelf=true,fieldPath=".parameters['archive_mode']",message="cannot be set: the operator sets up archiving itself; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('data_sync_retry' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'data_sync_retry' in oldSelf.value().parameters && oldSelf.value().parameters['data_sync_retry'] == self.parameters['data_sync_retry']",optionalOldSelf=true,fieldPath=".parameters['data_sync_retry']",message="cannot be set: a retry after a failed fsync loses writes silently; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('fsync' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'fsync' in oldSelf.value().parameters && oldSelf.value().parameters['fsync'] == self.parameters['fsync']",optionalOldSelf=true,fieldPath=".parameters['fsync']",message="cannot be set: without it a crash loses the database; use synchronous_commit = off to trade the last transactions for speed"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('full_page_writes' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'full_page_writes' in oldSelf.value().parameters && oldSelf.value().parameters['full_page_writes'] == self.parameters['full_page_writes']",optionalOldSelf=true,fieldPath=".parameters['full_page_writes']",message="cannot be set: without it a crash can damage pages; use wal_compression = on to write less"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('hba_file' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'hba_file' in oldSelf.value().parameters && oldSelf.value().parameters['hba_file'] == self.parameters['hba_file']",optionalOldSelf=true,fieldPath=".parameters['hba_file']",message="cannot be set: the agent sets it; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('ident_file' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'ident_file' in oldSelf.value().parameters && oldSelf.value().parameters['ident_file'] == self.parameters['ident_file']",optionalOldSelf=true,fieldPath=".parameters['ident_file']",message="cannot be set: the agent sets it; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('ignore_checksum_failure' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'ignore_checksum_failure' in oldSelf.value().parameters && oldSelf.value().parameters['ignore_checksum_failure'] == self.parameters['ignore_checksum_failure']",optionalOldSelf=true,fieldPath=".parameters['ignore_checksum_failure']",message="cannot be set: it hides damaged data; ask for a clone of the instance, or restore a backup"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('listen_addresses' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'listen_addresses' in oldSelf.value().parameters && oldSelf.value().parameters['listen_addresses'] == self.parameters['listen_addresses']",optionalOldSelf=true,fieldPath=".parameters['listen_addresses']",message="cannot be set: the agent listens where the Services expect it; use a NetworkPolicy to limit who may connect"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('password_encryption' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'password_encryption' in oldSelf.value().parameters && oldSelf.value().parameters['password_encryption'] == self.parameters['password_encryption']",optionalOldSelf=true,fieldPath=".parameters['password_encryption']",message="cannot be set: passwords are always stored as scram-sha-256; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('port' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'port' in oldSelf.value().parameters && oldSelf.value().parameters['port'] == self.parameters['port']",optionalOldSelf=true,fieldPath=".parameters['port']",message="cannot be set: the Services expect port 5432; choose another port in a Service of your own"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('restore_command' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'restore_command' in oldSelf.value().parameters && oldSelf.value().parameters['restore_command'] == self.parameters['restore_command']",optionalOldSelf=true,fieldPath=".parameters['restore_command']",message="cannot be set: the operator sets up archiving itself; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('ssl' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'ssl' in oldSelf.value().parameters && oldSelf.value().parameters['ssl'] == self.parameters['ssl']",optionalOldSelf=true,fieldPath=".parameters['ssl']",message="cannot be set: TLS is always on, with the cluster's own certificates; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('ssl_ca_file' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'ssl_ca_file' in oldSelf.value().parameters && oldSelf.value().parameters['ssl_ca_file'] == self.parameters['ssl_ca_file']",optionalOldSelf=true,fieldPath=".parameters['ssl_ca_file']",message="cannot be set: TLS is always on, with the cluster's own certificates; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('ssl_cert_file' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'ssl_cert_file' in oldSelf.value().parameters && oldSelf.value().parameters['ssl_cert_file'] == self.parameters['ssl_cert_file']",optionalOldSelf=true,fieldPath=".parameters['ssl_cert_file']",message="cannot be set: TLS is always on, with the cluster's own certificates; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('ssl_key_file' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'ssl_key_file' in oldSelf.value().parameters && oldSelf.value().parameters['ssl_key_file'] == self.parameters['ssl_key_file']",optionalOldSelf=true,fieldPath=".parameters['ssl_key_file']",message="cannot be set: TLS is always on, with the cluster's own certificates; leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.parameters) || !('zero_damaged_pages' in self.parameters) || oldSelf.hasValue() && has(oldSelf.value().parameters) && 'zero_damaged_pages' in oldSelf.value().parameters && oldSelf.value().parameters['zero_damaged_pages'] == self.parameters['zero_damaged_pages']",optionalOldSelf=true,fieldPath=".parameters['zero_damaged_pages']",message="cannot be set: it hides damaged data; ask for a clone of the instance, or restore a backup"
// +kubebuilder:validation:XValidation:rule="!has(self.synchronous) || !has(self.synchronous.mode) || self.synchronous.mode != 'quorum' || has(self.replicas) && self.replicas > 1 || oldSelf.hasValue() && has(oldSelf.value().synchronous) && oldSelf.value().synchronous == self.synchronous && has(oldSelf.value().replicas) == has(self.replicas) && (!has(self.replicas) || oldSelf.value().replicas == self.replicas)",optionalOldSelf=true,fieldPath=".synchronous.mode",message="cannot be quorum with one instance, which has no replica to confirm commits: set spec.replicas to at least 2, or leave spec.synchronous out"
// +kubebuilder:validation:XValidation:rule="!has(self.synchronous) || !has(self.synchronous.mode) || self.synchronous.mode != 'quorum' || !has(self.synchronous.number) || !has(self.replicas) || self.replicas <= 1 || self.synchronous.number < self.replicas || oldSelf.hasValue() && has(oldSelf.value().synchronous) && oldSelf.value().synchronous == self.synchronous && has(oldSelf.value().replicas) == has(self.replicas) && (!has(self.replicas) || oldSelf.value().replicas == self.replicas)",optionalOldSelf=true,fieldPath=".synchronous.number",message="must be less than spec.replicas, which counts the primary too",messageExpression="'must be less than spec.replicas, which counts the primary too: at most ' + (self.replicas == 2 ? '1' : self.replicas == 3 ? '2' : self.replicas == 4 ? '3' : '4')"
type PostgresClusterSpec struct {
	// replicas is the number of instances, the primary included: 1 to 5.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5
	Replicas *int32 `json:"replicas,omitempty"`

	// version is the major version of PostgreSQL. The operator's default version when omitted.
	// +optional
	// +kubebuilder:validation:Enum="15";"16";"17";"18"
	Version string `json:"version,omitempty"`

	// storage is the size of each instance's volume in whole gibibytes, such as 20Gi, at most 65536Gi.
	// It can grow, not shrink. The operator's default size when omitted.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^[1-9][0-9]{0,4}Gi$') && quantity(self).compareTo(quantity('65536Gi')) <= 0",message="must be whole gibibytes from 1Gi to 65536Gi, such as 20Gi"
	Storage string `json:"storage,omitempty"`

	// storageClassName is the StorageClass of the volumes; the cluster's default class when omitted.
	// It cannot be changed afterwards.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.size() == 0 || !format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a StorageClass: lower-case letters, digits, '-' and '.'"
	StorageClassName *string `json:"storageClassName,omitempty"`

	// image is the container image of PostgreSQL; its major version must be spec.version.
	// The operator's image for the version when omitted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|\\\\[[a-fA-F0-9:]+\\\\])(:[0-9]+)?/)?[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(@[a-z0-9]+([+._-][a-z0-9]+)*:[a-fA-F0-9]{32,})?$')",message="must be an image reference such as registry.example.com/postgres:17 or postgres@sha256:0123..."
	Image string `json:"image,omitempty"`

	// resources are the compute resources of the postgres container.
	// Requests must not exceed limits, and a memory limit must be at least 64Mi. Claims are not supported.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.claims) || self.claims.size() == 0",fieldPath=".claims",reason=FieldValueForbidden,message="claims are not supported"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || ['cpu', 'memory', 'ephemeral-storage'].all(r, !(r in self.requests) || quantity(string(self.requests[r])).compareTo(quantity('0')) >= 0)",fieldPath=".requests",message="must not be negative"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || ['cpu', 'memory', 'ephemeral-storage'].all(r, !(r in self.limits) || quantity(string(self.limits[r])).compareTo(quantity('0')) > 0)",fieldPath=".limits",message="must be greater than zero: leave a limit out for none"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || quantity(string(self.limits['memory'])).compareTo(quantity('64Mi')) >= 0",fieldPath=".limits",message="memory must be at least 64Mi: PostgreSQL does not start with less"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('cpu' in self.requests) || !('cpu' in self.limits) || quantity(string(self.requests['cpu'])).compareTo(quantity(string(self.limits['cpu']))) <= 0",fieldPath=".requests",message="cpu must not exceed its limit"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('memory' in self.requests) || !('memory' in self.limits) || quantity(string(self.requests['memory'])).compareTo(quantity(string(self.limits['memory']))) <= 0",fieldPath=".requests",message="memory must not exceed its limit"
	// +kubebuilder:validation:XValidation:rule="!has(self.requests) || !has(self.limits) || !('ephemeral-storage' in self.requests) || !('ephemeral-storage' in self.limits) || quantity(string(self.requests['ephemeral-storage'])).compareTo(quantity(string(self.limits['ephemeral-storage']))) <= 0",fieldPath=".requests",message="ephemeral-storage must not exceed its limit"
	Resources corev1.ResourceRequirements `json:"resources,omitempty,omitzero"`

	// parameters are settings of postgresql.conf, as text.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Parameters map[string]string `json:"parameters,omitempty"`

	// hba are lines of pg_hba.conf for your own roles, such as "hostssl all reports 10.0.0.0/8 scram-sha-256".
	// They stand behind the operator's own lines and before the one that lets everybody but the superuser in with TLS and
	// a password. The superuser is let in only by a line that names it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +kubebuilder:validation:items:XValidation:rule="!self.contains('\\n') && !self.contains('\\r')",reason=FieldValueForbidden,message="must be one line: write one list item for each line of pg_hba.conf"
	// +kubebuilder:validation:items:XValidation:rule="self.matches('^[ \\t]*hostssl[ \\t]')",reason=FieldValueForbidden,message="must begin with hostssl, because all connections have TLS: write hostssl instead of host or hostgssenc; local and hostnossl lines are not accepted"
	HBA []string `json:"hba,omitempty"`

	// affinity steers the scheduling of the instances.
	// Unless podAntiAffinity is set here, instances prefer different nodes.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// tolerations of the instances' pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:XValidation:rule="!has(self.operator) || self.operator in ['', 'Equal', 'Exists', 'Gt', 'Lt']",fieldPath=".operator",message="must be Equal, Exists, Gt or Lt"
	// +kubebuilder:validation:items:XValidation:rule="has(self.key) && self.key != '' || has(self.operator) && self.operator == 'Exists'",fieldPath=".operator",message="must be Exists when key is empty: it then tolerates every taint"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",fieldPath=".value",message="must be empty when operator is Exists"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.effect) || self.effect in ['', 'NoExecute', 'NoSchedule', 'PreferNoSchedule']",fieldPath=".effect",message="must be NoExecute, NoSchedule or PreferNoSchedule, or left out for all of them"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",fieldPath=".effect",message="must be NoExecute when tolerationSeconds is set"
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// topologySpreadConstraints of the instances' pods.
	// An empty labelSelector selects this cluster's instances.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:XValidation:rule="self.maxSkew >= 1",fieldPath=".maxSkew",message="must be greater than zero"
	// +kubebuilder:validation:items:XValidation:rule="self.whenUnsatisfiable in ['DoNotSchedule', 'ScheduleAnyway']",fieldPath=".whenUnsatisfiable",message="must be DoNotSchedule or ScheduleAnyway"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.minDomains) || self.minDomains >= 1",fieldPath=".minDomains",message="must be greater than zero"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.minDomains) || self.whenUnsatisfiable != 'ScheduleAnyway'",fieldPath=".minDomains",message="can only be set when whenUnsatisfiable is DoNotSchedule"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.nodeAffinityPolicy) || self.nodeAffinityPolicy in ['Honor', 'Ignore']",fieldPath=".nodeAffinityPolicy",message="must be Honor or Ignore"
	// +kubebuilder:validation:items:XValidation:rule="!has(self.nodeTaintsPolicy) || self.nodeTaintsPolicy in ['Honor', 'Ignore']",fieldPath=".nodeTaintsPolicy",message="must be Honor or Ignore"
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// nodeSelector restricts the instances to nodes with these labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// synchronous says how many replicas confirm a commit before it is acknowledged; none when omitted.
	// +optional
	Synchronous *SynchronousReplication `json:"synchronous,omitempty"` //nolint:kubeapilinter // {} is not the same as nothing

	// failover says when a replica takes over from a primary that is lost.
	// +optional
	Failover *Failover `json:"failover,omitempty"`

	// deletionPolicy says whether the volumes are kept (Retain) or deleted (Delete) with the cluster.
	// It is obeyed even while spec.paused is set or the spec is invalid.
	// +optional
	// +default="Retain"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// deletionProtection refuses the deletion of this PostgresCluster until it is set to false.
	// +optional
	DeletionProtection bool `json:"deletionProtection,omitempty"`

	// upgradePolicy must be AllowMajor for spec.version to go up.
	// +optional
	// +default="MinorOnly"
	UpgradePolicy UpgradePolicy `json:"upgradePolicy,omitempty"`

	// paused stops the operator from changing anything of this cluster; the database goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
}
