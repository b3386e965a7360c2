package manifests

// This file holds the options, with their defaults and their validation.

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/webhookconf"
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

const (
	defaultReplicas       = 2
	defaultRegisterArg    = "register"
	auditArg              = "audit"
	defaultCPURequest     = "50m"
	defaultMemoryRequest  = "64Mi"
	defaultMemoryHeadroom = 256 << 20 // in addition to the requests that are in memory at once

	// requestsAtOnce is the number of requests of the largest size that are in memory at a time.
	requestsAtOnce = 8
)

// reportsArg is the argument with which an audit writes PolicyReports.
const reportsArg = "-policy-reports"

// writesReports reports whether the arguments of the audit contain -policy-reports, in one of the forms of package flag.
func (o Options) writesReports() bool {
	return slices.ContainsFunc(o.AuditArgs, func(arg string) bool {
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		wanted, err := strconv.ParseBool(value)
		return strings.HasPrefix(arg, "-") && name == reportsArg[1:] && (!given || err == nil && wanted)
	})
}

// withDefaults returns the options with their defaults filled in. maxRequest is the size of the largest request in
// bytes. serves is true for a program with extensions.
func (o Options) withDefaults(fingerprint string, maxRequest int64, serves bool) Options {
	o.Name = cmp.Or(o.Name, fingerprint)
	o.ServiceAccountName = cmp.Or(o.ServiceAccountName, o.Name)
	if o.Replicas == 0 {
		o.Replicas = 1
		if serves {
			o.Replicas = defaultReplicas
		}
	}
	if len(o.RegisterArgs) == 0 {
		o.RegisterArgs = append([]string{defaultRegisterArg}, o.Args...)
	}
	if len(o.AuditArgs) == 0 {
		o.AuditArgs = append(slices.Clone(o.Args), auditArg, reportsArg)
	}
	if len(o.Resources.Limits)+len(o.Resources.Requests)+len(o.Resources.Claims) == 0 {
		o.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(defaultCPURequest),
				corev1.ResourceMemory: resource.MustParse(defaultMemoryRequest),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(defaultMemoryHeadroom+requestsAtOnce*maxRequest, resource.BinarySI)},
		}
	}
	return o
}

// validate returns all errors, each with its remedy. metrics is the port of the pods' metrics, 0 for none.
func (o Options) validate(metrics int32) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("eirinix: manifests.Options."+format, args...))
	}
	checkName := func(field, value string, check func(string) []string) {
		if value == "" {
			return
		}
		if problems := check(value); len(problems) > 0 {
			bad("%s is %q: %s", field, value, strings.Join(problems, "; "))
		}
	}
	checkMap := func(field string, entries map[string]string, check func(key, value string) []string, ours ...string) {
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			switch problems := check(key, entries[key]); {
			case slices.Contains(ours, key):
				bad("%s holds %q, which manifests.Of sets itself; remove it", field, key)
			case len(problems) > 0:
				bad("%s holds %s=%q: %s", field, key, entries[key], strings.Join(problems, "; "))
			}
		}
	}
	if o.Image == "" {
		bad("Image is empty; set it to the image that holds this program, such as \"registry.example.org/webhook:1.0\"")
	} else if strings.TrimSpace(o.Image) != o.Image {
		bad("Image is %q; remove the spaces", o.Image)
	}
	checkName("Name", o.Name, validation.IsDNS1123Label)
	checkName("ServiceAccountName", o.ServiceAccountName, validation.IsDNS1123Subdomain)
	checkName("PriorityClassName", o.PriorityClassName, validation.IsDNS1123Subdomain)
	if o.Replicas < 0 {
		bad("Replicas is %d; give a number of pods, or 0 for the default", o.Replicas)
	}
	label := func(key, value string) []string {
		return append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	}
	annotation := func(key, _ string) []string { return validation.IsQualifiedName(strings.ToLower(key)) }
	checkMap("Labels", o.Labels, label, labelName, labelComponent, webhookconf.FingerprintLabel)
	checkMap("Annotations", o.Annotations, annotation, description)
	checkMap("NodeSelector", o.NodeSelector, label, corev1.LabelOSStable)
	for i, s := range o.ImagePullSecrets {
		if s.Name == "" {
			bad("ImagePullSecrets[%d].Name is empty; set it to the name of a Secret in the program's namespace", i)
		}
		checkName(fmt.Sprintf("ImagePullSecrets[%d].Name", i), s.Name, validation.IsDNS1123Subdomain)
	}
	for i, t := range o.Tolerations {
		if problem := tolerationProblem(t); problem != "" {
			bad("Tolerations[%d]: %s", i, problem)
		}
	}
	if fields := len(strings.Fields(o.AuditSchedule)); o.AuditSchedule != "" && fields != 5 && !strings.HasPrefix(o.AuditSchedule, "@") {
		bad("AuditSchedule is %q; give the five fields of cron, such as \"0 6 * * *\", or a name such as @daily", o.AuditSchedule)
	}
	if len(o.AuditArgs) > 0 && o.AuditSchedule == "" {
		bad("AuditArgs is set, but AuditSchedule is not; set it too, or leave out both")
	}
	if o.PodMonitor && metrics == 0 {
		bad("PodMonitor is set, but other pods cannot reach the program's metrics; set ManagerOptions.MetricsBindAddress to a port on all addresses, such as \":9090\"")
	}
	return errors.Join(errs...)
}

// tolerationProblem returns the reason why an API server would refuse a toleration, or "" if it would not.
func tolerationProblem(t corev1.Toleration) string {
	operators := []corev1.TolerationOperator{"", corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt}
	effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	switch {
	case !slices.Contains(operators, t.Operator):
		return fmt.Sprintf("Operator is %q; it must be Exists or Equal", t.Operator)
	case !slices.Contains(effects, t.Effect):
		return fmt.Sprintf("Effect is %q; it must be NoSchedule, PreferNoSchedule or NoExecute, or empty for all", t.Effect)
	case t.Key == "" && t.Operator != corev1.TolerationOpExists:
		return "Key is empty; set it to that of a taint, or set Operator to Exists to tolerate every taint"
	case t.Key != "" && len(validation.IsQualifiedName(t.Key)) > 0:
		return fmt.Sprintf("Key is %q: %s", t.Key, strings.Join(validation.IsQualifiedName(t.Key), "; "))
	case t.Operator == corev1.TolerationOpExists && t.Value != "":
		return fmt.Sprintf("Value is %q, which the Operator Exists does not compare; leave it out, or set Operator to Equal", t.Value)
	case t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute:
		return "TolerationSeconds is set; set Effect to NoExecute too, or leave it out"
	}
	return strings.Join(validation.IsValidLabelValue(t.Value), "; ")
}
