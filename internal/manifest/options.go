package manifest

// This file declares the user's choices, with their defaults and their validation.

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

// ReportsArg is the argument with which an audit writes PolicyReports.
const ReportsArg = "-policy-reports"

// WritesReports reports whether the arguments of the audit contain -policy-reports, in one of the forms of package flag.
func (o Options) WritesReports() bool {
	return slices.ContainsFunc(o.AuditArgs, func(arg string) bool {
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		wanted, err := strconv.ParseBool(value)
		return strings.HasPrefix(arg, "-") && name == ReportsArg[1:] && (!given || err == nil && wanted)
	})
}

// Options holds the choices that nothing else implies. Its fields are those of manifests.Options, in the same order, so
// that one type converts to the other.
type Options struct {
	Image              string
	Command            []string
	Args               []string
	RegisterArgs       []string
	Env                []corev1.EnvVar
	Name               string
	ServiceAccountName string
	Replicas           int32
	Labels             map[string]string
	Annotations        map[string]string
	PriorityClassName  string
	NodeSelector       map[string]string
	Tolerations        []corev1.Toleration
	ImagePullSecrets   []corev1.LocalObjectReference
	Resources          corev1.ResourceRequirements
	PodMonitor         bool
	AuditSchedule      string
	AuditArgs          []string
}

// WithDefaults returns the options with their defaults filled in. maxRequest is the size of the largest request in
// bytes. serves is true for a program with extensions.
func (o Options) WithDefaults(fingerprint string, maxRequest int64, serves bool) Options {
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
		o.AuditArgs = append(slices.Clone(o.Args), auditArg, ReportsArg)
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

// Validate returns all errors, each with its remedy. metrics is the port of the pods' metrics, 0 for none.
func (o Options) Validate(metrics int32) error {
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
	checkMap("Labels", o.Labels, label, LabelName, LabelComponent, webhookconf.FingerprintLabel)
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
