package render

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/acme/pg-operator/apis/naming"
	"github.com/acme/pg-operator/reconciler/decide"
	"github.com/acme/pg-operator/reconciler/snapshot"
)

const (
	// terminationGraceSeconds is time for a checkpoint, a fast shutdown and the hand-over to a replica.
	terminationGraceSeconds = 120
	// secretMode lets the postgres group read; PostgreSQL refuses a key that others can read.
	secretMode = 0o440
	// readinessPeriodSeconds is short because readiness takes an instance out of the Services.
	readinessPeriodSeconds = 1
	// startupFailures times startupPeriodSeconds is how long the agent may take until it first answers; a recovery
	// that makes progress counts as an answer, however long it takes.
	startupPeriodSeconds, startupFailures   = 1, 120
	livenessPeriodSeconds, livenessFailures = 5, 6
)

func podSpec(s *snapshot.Cluster, plan decide.Plan, config Config) *corev1ac.PodSpecApplyConfiguration {
	spec := corev1ac.PodSpec().
		WithServiceAccountName(names(s).ServiceAccount()).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(terminationGraceSeconds).
		WithSecurityContext(corev1ac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(config.PostgresUID).
			WithRunAsGroup(config.PostgresUID).
			WithFSGroup(config.PostgresUID).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(corev1ac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithInitContainers(installContainer(s, config)).
		WithContainers(postgresContainer(s, plan)).
		WithVolumes(
			emptyDir(naming.VolumeAgent), emptyDir(naming.VolumeRun), emptyDir(naming.VolumeTmp), sharedMemory(),
			secretVolume(naming.VolumeServerTLS, names(s).CertificateServer()),
			secretVolume(naming.VolumeClientTLS, names(s).CertificateReplica()),
			secretVolume(naming.VolumeAppUser, names(s).SecretApp()),
			secretVolume(naming.VolumeSuperuser, names(s).SecretSuperuser()),
		)
	return schedule(spec, s)
}

// installContainer copies the agent into the pod, so that any image with PostgreSQL can be used. It gets PostgreSQL's
// resources, which cost nothing more because it ends first: a quota refuses pods with a container that names none.
func installContainer(s *snapshot.Cluster, config Config) *corev1ac.ContainerApplyConfiguration {
	container := corev1ac.Container().
		WithName(naming.ContainerInstall).
		WithImage(config.OperatorImage).
		WithArgs("instance", "install", "--to", naming.PathAgentBin).
		WithSecurityContext(restricted()).
		WithVolumeMounts(mount(naming.VolumeAgent, naming.PathAgentDir))
	return withResources(container, s)
}

func postgresContainer(s *snapshot.Cluster, plan decide.Plan) *corev1ac.ContainerApplyConfiguration {
	container := corev1ac.Container().
		WithName(naming.ContainerPostgres).
		WithImage(plan.Image).
		WithCommand(naming.PathAgentBin, "instance", "run", "--cluster", s.Object.Name).
		WithEnv(
			fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace"),
			fieldEnv("POD_UID", "metadata.uid"), fieldEnv("POD_IP", "status.podIP"),
		).
		WithPorts(
			port(naming.PortPostgresName, naming.PortPostgres), port(naming.PortAgentName, naming.PortAgent),
			port(naming.PortProbeName, naming.PortProbe),
		).
		WithStartupProbe(probe("/startupz", startupPeriodSeconds, startupFailures)).
		WithLivenessProbe(probe("/livez", livenessPeriodSeconds, livenessFailures)).
		WithReadinessProbe(probe("/readyz", readinessPeriodSeconds, 2)).
		WithSecurityContext(restricted()).
		WithVolumeMounts(
			mount(naming.VolumeData, naming.PathData),
			mount(naming.VolumeAgent, naming.PathAgentDir).WithReadOnly(true),
			mount(naming.VolumeRun, naming.PathRun),
			mount(naming.VolumeTmp, naming.PathTmp),
			mount(naming.VolumeShm, naming.PathShm),
			mount(naming.VolumeServerTLS, naming.PathServerTLS).WithReadOnly(true),
			mount(naming.VolumeClientTLS, naming.PathClientTLS).WithReadOnly(true),
			mount(naming.VolumeAppUser, naming.PathAppUser).WithReadOnly(true),
			mount(naming.VolumeSuperuser, naming.PathSuperuser).WithReadOnly(true),
		)
	return withResources(container, s)
}

func withResources(container *corev1ac.ContainerApplyConfiguration, s *snapshot.Cluster) *corev1ac.ContainerApplyConfiguration {
	if resources := s.Object.Spec.Resources; len(resources.Limits)+len(resources.Requests) > 0 {
		ac := corev1ac.ResourceRequirements()
		if len(resources.Limits) > 0 {
			ac.WithLimits(maps.Clone(resources.Limits))
		}
		if len(resources.Requests) > 0 {
			ac.WithRequests(maps.Clone(resources.Requests))
		}
		container.WithResources(ac)
	}
	return container
}

// restricted meets the "restricted" profile of Pod Security.
func restricted() *corev1ac.SecurityContextApplyConfiguration {
	return corev1ac.SecurityContext().
		WithAllowPrivilegeEscalation(false).
		WithReadOnlyRootFilesystem(true).
		WithCapabilities(corev1ac.Capabilities().WithDrop("ALL"))
}

func probe(path string, period, failures int32) *corev1ac.ProbeApplyConfiguration {
	return corev1ac.Probe().
		WithHTTPGet(corev1ac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(naming.PortProbeName))).
		WithPeriodSeconds(period).
		WithTimeoutSeconds(2).
		WithFailureThreshold(failures)
}

func fieldEnv(name, path string) *corev1ac.EnvVarApplyConfiguration {
	return corev1ac.EnvVar().WithName(name).WithValueFrom(
		corev1ac.EnvVarSource().WithFieldRef(corev1ac.ObjectFieldSelector().WithFieldPath(path)))
}

func port(name string, number int32) *corev1ac.ContainerPortApplyConfiguration {
	return corev1ac.ContainerPort().WithName(name).WithContainerPort(number).WithProtocol(corev1.ProtocolTCP)
}

func mount(volume, path string) *corev1ac.VolumeMountApplyConfiguration {
	return corev1ac.VolumeMount().WithName(volume).WithMountPath(path)
}

func emptyDir(name string) *corev1ac.VolumeApplyConfiguration {
	return corev1ac.Volume().WithName(name).WithEmptyDir(corev1ac.EmptyDirVolumeSource())
}

// sharedMemory replaces the runtime's /dev/shm of 64 MiB, which parallel queries overrun.
func sharedMemory() *corev1ac.VolumeApplyConfiguration {
	return corev1ac.Volume().WithName(naming.VolumeShm).
		WithEmptyDir(corev1ac.EmptyDirVolumeSource().WithMedium(corev1.StorageMediumMemory))
}

func secretVolume(name, secret string) *corev1ac.VolumeApplyConfiguration {
	return corev1ac.Volume().WithName(name).
		WithSecret(corev1ac.SecretVolumeSource().WithSecretName(secret).WithDefaultMode(secretMode))
}
