package eirinix

import (
	"flag"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// DeploymentOptions is what Manifests cannot know of the program that it deploys. Only Image is required, and nothing
// but Manifests looks at it. What has no field here can be set on the objects that Manifests returns.
type DeploymentOptions struct {
	// Image holds the program. It runs with a read-only file system and not as root: its user must be a number
	// other than 0, as in "USER 65532".
	Image string

	// Command replaces the image's entrypoint; empty leaves it.
	Command []string

	// Args are the arguments with which the program calls Start. FlagArgs makes them of the flags that the process was
	// given. Where it was given arguments and Args is nil, Manifests logs a warning: make it an empty slice if the
	// program needs none in the cluster.
	Args []string

	// RegisterArgs are the arguments with which the program calls RegisterExtensions, for the Job of a split
	// deployment (RegisterWebHook false). Empty: "register", then Args.
	RegisterArgs []string

	// Env is the environment of both. GOMEMLIMIT follows the memory limit unless it stands here.
	Env []corev1.EnvVar

	// Name is that of the Deployment and what goes with it. Default OperatorFingerprint.
	Name string

	// ServiceAccountName is the name of the ServiceAccount that is made. Default Name.
	ServiceAccountName string

	// Replicas is how many pods serve. 0 means 2, and 1 for a program without extensions, because each replica's
	// watchers and reconcilers hear of everything.
	Replicas int32

	// Labels stand on every object and pod, beside those by which the pods are selected.
	Labels map[string]string

	// Annotations stand on every object and pod, beside ours: to keep a service mesh's proxy out of the pods, say.
	Annotations map[string]string

	// PriorityClassName is the pods' PriorityClass. Empty is the cluster's default; system-cluster-critical suits a
	// webhook whose policy is Fail.
	PriorityClassName string

	// NodeSelector is what nodes must carry beside kubernetes.io/os=linux.
	NodeSelector map[string]string

	// Tolerations are the pods'.
	Tolerations []corev1.Toleration

	// ImagePullSecrets name Secrets in the program's namespace, with which the image is pulled.
	ImagePullSecrets []corev1.LocalObjectReference

	// Resources are the container's. Empty: requests of 50m CPU and 64Mi memory, and a memory limit of 256Mi and
	// room for eight requests of MaxRequestBytes: 512Mi in all. A CPU limit would make calls late.
	Resources corev1.ResourceRequirements

	// PodMonitor adds a PodMonitor (monitoring.coreos.com/v1), by which a Prometheus of the Prometheus operator finds
	// the pods' metrics. Where those ask for a token, it comes with a ServiceAccount that may read metrics and nothing
	// else, and a Secret with its token. It needs MetricsBindAddress.
	PodMonitor bool
}

// FlagArgs gives the flags that were set as arguments of the form -name=value, in the order of their names, for
// DeploymentOptions.Args. It leaves out those named in except: flags that are only for the machine at hand, as that of a
// kubeconfig, and those that hold secrets, because arguments can be read in the manifests. A name in except that no flag
// has is ignored, so that several flag sets may share one list. The result is never nil.
//
// A value is what the flag's Value returns from String, so Set must take it: the package's own types do, but for flag.Func
// and flag.BoolFunc, which forget it. Arguments that are no flags are not among the result.
func FlagArgs(flags *flag.FlagSet, except ...string) []string {
	args := []string{}
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains(except, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
