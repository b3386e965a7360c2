package manifests

// This file declares the inputs of Of, and makes arguments of flags.

import (
	"flag"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Options holds the inputs of Of that nothing else implies. Only Image is required. To set anything that has no field
// here, change the objects that Of returns.
type Options struct {
	// Image is the container image of the program. The program runs with a read-only root file system and not as root.
	// The image's user must therefore be a number other than 0, as in "USER 65532".
	Image string

	// Command replaces the image's entrypoint. Empty keeps it.
	Command []string

	// Args are the arguments with which the program calls Start. FlagArgs builds them from the flags of this process.
	// If this process has arguments and Args is nil, Of logs a warning. If the program needs no arguments in the
	// cluster, set an empty slice.
	Args []string

	// RegisterArgs are the arguments with which the program calls RegisterExtensions, for the Job of a split deployment
	// (RegisterWebHook false). Empty means "register" followed by Args.
	RegisterArgs []string

	// Env is the environment of the serving and the registering pods. GOMEMLIMIT is derived from the memory limit
	// unless Env sets it.
	Env []corev1.EnvVar

	// Name is the name of the Deployment and of the objects that belong to it. Default OperatorFingerprint.
	Name string

	// ServiceAccountName is the name of the ServiceAccount, which is among the objects. Default Name.
	ServiceAccountName string

	// Replicas is the number of serving pods. 0 means 2, or 1 for a program without extensions, because the watchers
	// and reconcilers of every replica see all events.
	Replicas int32

	// Labels are set on every object and pod, in addition to the labels that select the pods.
	Labels map[string]string

	// Annotations are set on every object and pod, in addition to the library's own. They can, for example, keep a
	// service mesh's proxy out of the pods.
	Annotations map[string]string

	// PriorityClassName is the pods' PriorityClass. Empty means the cluster's default. system-cluster-critical suits a
	// webhook with failurePolicy Fail.
	PriorityClassName string

	// NodeSelector holds the labels that a node must have in addition to kubernetes.io/os=linux.
	NodeSelector map[string]string

	// Tolerations are the tolerations of the pods.
	Tolerations []corev1.Toleration

	// ImagePullSecrets are the Secrets, in the program's namespace, with which the image is pulled.
	ImagePullSecrets []corev1.LocalObjectReference

	// Resources are the resources of the container. Empty means requests of 50m CPU and 64Mi memory, and a memory
	// limit. The limit is 256Mi plus room for eight requests of MaxRequestBytes, so 512Mi by default. A CPU limit would
	// delay calls.
	Resources corev1.ResourceRequirements

	// PodMonitor adds a PodMonitor (monitoring.coreos.com/v1), with which a Prometheus of the Prometheus operator finds
	// the pods' metrics. If the metrics require a token, it also adds a ServiceAccount that can only read metrics, and
	// a Secret with its token. It requires MetricsBindAddress.
	PodMonitor bool

	// AuditSchedule adds a CronJob that audits the objects that exist, at these times (as in CronJobSpec: "0 6 * * *" or
	// @daily). It has a ServiceAccount of its own, which may list the resources that the rules of the steps select.
	// Empty means none.
	AuditSchedule string

	// AuditArgs are the arguments with which the program audits. Empty means Args followed by "audit" and
	// "-policy-reports". The rights to write reports are granted only with the latter.
	AuditArgs []string
}

// FlagArgs returns the flags that were set as arguments of the form -name=value, sorted by name, for Options.Args. The
// result is never nil. Arguments that are not flags are not part of it.
//
// It omits the flags in except. List there flags that apply only to the local machine, such as the path of a
// kubeconfig. List secrets too, because the manifests expose the arguments. A name in except that matches no flag is
// ignored, so that several flag sets can share one list.
//
// The value of a flag is the result of its Value's String method, so its Set method must accept that. The values of
// package flag do, except those of flag.Func and flag.BoolFunc, which do not keep their value.
func FlagArgs(flags *flag.FlagSet, except ...string) []string {
	args := []string{}
	flags.Visit(func(f *flag.Flag) {
		if !slices.Contains(except, f.Name) {
			args = append(args, "-"+f.Name+"="+f.Value.String())
		}
	})
	return args
}
