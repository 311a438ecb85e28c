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
type PostgresCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what you want.
	// +optional
	Spec PostgresClusterSpec `json:"spec,omitempty"`
	// status is what was last seen.
	// +optional
	Status PostgresClusterStatus `json:"status,omitempty"`
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
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]*Gi$`
	// +kubebuilder:validation:MaxLength=7
	Storage string `json:"storage,omitempty"`

	// storageClassName is the StorageClass of the volumes; the cluster's default class when omitted.
	// It cannot be changed afterwards.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClassName *string `json:"storageClassName,omitempty"`

	// image is the container image of PostgreSQL; its major version must be spec.version.
	// The operator's image for the version when omitted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`

	// resources are the compute resources of the postgres container.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty,omitzero"`

	// parameters are settings of postgresql.conf, as text.
	// +optional
	// +kubebuilder:validation:MaxProperties=256
	Parameters map[string]string `json:"parameters,omitempty"`

	// affinity steers the scheduling of the instances. Unless podAntiAffinity is set here, instances
	// prefer different nodes.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// tolerations of the instances' pods.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// topologySpreadConstraints of the instances' pods. An empty labelSelector selects this cluster's instances.
	// +optional
	// +listType=map
	// +listMapKey=topologyKey
	// +listMapKey=whenUnsatisfiable
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// nodeSelector restricts the instances to nodes with these labels.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// deletionPolicy says whether the volumes are kept (Retain) or deleted (Delete) with the cluster.
	// +optional
	// +default="Retain"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// upgradePolicy must be AllowMajor for spec.version to go up.
	// +optional
	// +default="MinorOnly"
	UpgradePolicy UpgradePolicy `json:"upgradePolicy,omitempty"`

	// paused stops the operator from changing anything of this cluster; the database goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`
}
