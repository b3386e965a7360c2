package eirinix

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"code.cloudfoundry.org/eirinix/internal/manifest"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

const (
	defaultReplicas       = 2
	defaultRegisterArg    = "register"
	defaultCPURequest     = "50m"
	defaultMemoryRequest  = "64Mi"
	defaultMemoryHeadroom = 256 << 20 // beside the requests that are read at once

	// requestsAtOnce is how many requests of the largest size are in memory at a time.
	requestsAtOnce = 8
)

// DeploymentOptions is what Manifests cannot know of the program that it deploys. Only Image is required, and nothing
// but Manifests looks at it. What has no field here can be set on the objects that Manifests returns.
type DeploymentOptions struct {
	// Image holds the program. It runs with a read-only file system and not as root: its user must be a number
	// other than 0, as in "USER 65532".
	Image string

	// Command replaces the image's entrypoint; empty leaves it.
	Command []string

	// Args are the arguments with which the program calls Start.
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

	// Resources are the container's. Empty: requests of 50m CPU and 64Mi memory, and a memory limit of 256Mi and
	// room for eight requests of MaxRequestBytes: 512Mi in all. A CPU limit would make calls late.
	Resources corev1.ResourceRequirements
}

// withDefaults fills in what was left out. serves tells whether there are extensions.
func (d DeploymentOptions) withDefaults(o ManagerOptions, serves bool) DeploymentOptions {
	d.Name = cmp.Or(d.Name, o.OperatorFingerprint)
	d.ServiceAccountName = cmp.Or(d.ServiceAccountName, d.Name)
	if d.Replicas == 0 {
		d.Replicas = 1
		if serves {
			d.Replicas = defaultReplicas
		}
	}
	if len(d.RegisterArgs) == 0 {
		d.RegisterArgs = append([]string{defaultRegisterArg}, d.Args...)
	}
	if len(d.Resources.Limits)+len(d.Resources.Requests)+len(d.Resources.Claims) == 0 {
		limit := defaultMemoryHeadroom + requestsAtOnce*cmp.Or(o.MaxRequestBytes, defaultMaxRequestBytes)
		d.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(defaultCPURequest),
				corev1.ResourceMemory: resource.MustParse(defaultMemoryRequest),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(limit, resource.BinarySI)},
		}
	}
	return d
}

// validate tells everything that is wrong, each with its remedy.
func (d DeploymentOptions) validate() (errs []error) {
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("eirinix: ManagerOptions.Deployment."+format, args...))
	}
	if d.Image == "" {
		bad("Image is empty; set it to the image that holds this program, such as \"registry.example.org/webhook:1.0\"")
	} else if strings.TrimSpace(d.Image) != d.Image {
		bad("Image is %q; take the spaces off", d.Image)
	}
	if d.Name != "" {
		if problems := validation.IsDNS1123Label(d.Name); len(problems) > 0 {
			bad("Name is %q: %s", d.Name, strings.Join(problems, "; "))
		}
	}
	if d.ServiceAccountName != "" {
		if problems := validation.IsDNS1123Subdomain(d.ServiceAccountName); len(problems) > 0 {
			bad("ServiceAccountName is %q: %s", d.ServiceAccountName, strings.Join(problems, "; "))
		}
	}
	if d.Replicas < 0 {
		bad("Replicas is %d; give a number of pods, or 0 for the default", d.Replicas)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Labels)) {
		switch problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(d.Labels[key])...); {
		case key == manifest.LabelName || key == manifest.LabelComponent || key == webhookconf.FingerprintLabel:
			bad("Labels holds %q, which Manifests sets itself; take it out", key)
		case len(problems) > 0:
			bad("Labels holds %s=%q: %s", key, d.Labels[key], strings.Join(problems, "; "))
		}
	}
	return errs
}
