package diagnose

// This file checks the Service that the API server calls, its endpoints and its ports.

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/list"
)

// backend holds a Service and its endpoints.
type backend struct {
	service *corev1.Service // nil if it is unknown
	missing bool            // the Service does not exist
	slices  []discoveryv1.EndpointSlice
}

// lookup reads a Service and its EndpointSlices, and notes missing rights. known reports whether it could read both.
func (d *diagnostic) lookup(ctx context.Context, namespace, name string) (b backend, known bool) {
	right := diagnosis.Right{Resource: "services", Verb: "get", Namespace: namespace, Name: name}
	service, err := read[corev1.Service](ctx, d, right)
	if err != nil {
		missing := apierrors.IsNotFound(err)
		return backend{missing: missing}, missing
	}
	b = backend{service: &service}
	if b.external() {
		return b, true
	}
	right = diagnosis.Right{Group: discoveryv1.GroupName, Resource: "endpointslices", Verb: "list", Namespace: namespace}
	list, err := read[discoveryv1.EndpointSliceList](ctx, d, right, discoveryv1.LabelServiceName+"="+name)
	b.slices = list.Items
	return b, err == nil
}

func (b backend) external() bool {
	return b.service != nil && b.service.Spec.Type == corev1.ServiceTypeExternalName
}

func (b backend) headless() bool {
	return b.service != nil && b.service.Spec.ClusterIP == corev1.ClusterIPNone
}

// port returns the Service's port of that number.
func (b backend) port(number int32) (corev1.ServicePort, bool) {
	for _, p := range cmp.Or(b.service, &corev1.Service{}).Spec.Ports {
		if p.Port == number {
			return p, true
		}
	}
	return corev1.ServicePort{}, false
}

// endpoints counts the endpoints behind the port, which EndpointSlices identify by its name.
func (b backend) endpoints(number int32) (ready, all int) {
	port, ok := b.port(number)
	if !ok {
		return 0, 0
	}
	for _, s := range b.slices {
		named := func(p discoveryv1.EndpointPort) bool { return p.Name != nil && *p.Name == port.Name }
		if !slices.ContainsFunc(s.Ports, named) {
			continue
		}
		for _, e := range s.Endpoints {
			all++
			if ptr.Deref(e.Conditions.Ready, true) {
				ready++
			}
		}
	}
	return ready, all
}

// podPort returns the port of the pods to which the Service forwards the calls for its port. It is 0 if that is
// unknown.
func (b backend) podPort(number int32) int32 {
	port, ok := b.port(number)
	if !ok {
		return 0
	}
	for _, s := range b.slices {
		for _, p := range s.Ports {
			if p.Name != nil && *p.Name == port.Name && p.Port != nil && len(s.Endpoints) > 0 {
				return *p.Port
			}
		}
	}
	return port.TargetPort.IntVal // 0 for the name of a port
}

// judgeService reports faults of the Service.
func (d *diagnostic) judgeService() {
	b, port := d.backend, d.Options.Target.Port
	switch {
	case b.missing:
		d.add(d.serviceMissing(""))
		return
	case b.service == nil || b.external():
		return
	case b.headless():
		f := d.serviceUnusable("")
		f.Severity = diagnosis.Warning // an API server that resolves endpoints itself can call it
		d.add(f)
	}
	if _, ok := b.port(port); !ok {
		d.add(d.noSuchServicePort(""))
		return
	}
	if ready, _ := b.endpoints(port); ready == 0 && d.backendKnown {
		d.add(d.noReadyEndpoints(""))
	}
}

// judgePorts compares the port that calls arrive at with the port that this process listens on, once calls are known
// not to arrive. Before that, an address translation between the two ports does not matter.
func (d *diagnostic) judgePorts() {
	listening, target := d.listenPort(), d.Options.Target
	arrives := target.Port
	if d.serviceMode() && !d.backend.external() {
		arrives = d.backend.podPort(target.Port)
	}
	lost := slices.ContainsFunc(d.findings, func(f diagnosis.Finding) bool {
		return slices.Contains(symptoms, f.Code) || f.Code == diagnosis.BadAnswer
	})
	if !lost || listening == 0 || arrives == 0 || listening == arrives {
		return
	}
	f := problem(diagnosis.PortMismatch, target.String(),
		fmt.Sprintf("calls to %s arrive at port %d, but this process listens on port %d", target, arrives, listening),
		fmt.Sprintf("set ManagerOptions.Port to %d, or ListenAddress to port %d, or forward the calls to "+
			"the right port", listening, arrives))
	if d.serviceMode() && !d.backend.external() {
		f.Object, f.Remedy = d.service(), fmt.Sprintf("set the targetPort of %s to %d, or "+
			"ManagerOptions.ListenAddress to port %d", d.service(), listening, arrives)
	}
	d.add(f)
}

func (d *diagnostic) serviceMissing(evidence string) diagnosis.Finding {
	return problem(diagnosis.ServiceMissing, d.service(), d.service()+", which the API server calls, does not exist",
		"create it, or correct ManagerOptions.ServiceName and WebhookNamespace of all replicas at once, since the address identifies the program",
		evidence)
}

func (d *diagnostic) serviceUnusable(evidence string) diagnosis.Finding {
	return problem(diagnosis.ServiceUnusable, d.service(),
		fmt.Sprintf("%s is of a kind that the API server does not call", d.service()),
		"set its type to ClusterIP, with a cluster IP", evidence)
}

func (d *diagnostic) noSuchServicePort(evidence string) diagnosis.Finding {
	port := d.Options.Target.Port
	f := problem(diagnosis.PortMismatch, d.service(),
		fmt.Sprintf("%s does not have the registered port %d", d.service(), port),
		fmt.Sprintf("add port %d to it, or set ManagerOptions.Port to one that it has", port), evidence)
	if d.backend.service != nil {
		has := list.Of(d.backend.service.Spec.Ports, func(p corev1.ServicePort) string { return fmt.Sprint(p.Port) })
		f.Remedy += " (" + strings.Join(has, ", ") + ")"
	}
	return f
}

func (d *diagnostic) noReadyEndpoints(evidence string) diagnosis.Finding {
	f := problem(diagnosis.NoReadyEndpoints, d.service(), d.service()+" has no ready endpoint",
		"find out why the pods behind it are not ready, and whether its selector matches them", evidence)
	if d.backend.service == nil {
		return f
	}
	selector, namespace := d.backend.service.Spec.Selector, d.Options.Target.Namespace
	_, all := d.backend.endpoints(d.Options.Target.Port)
	text := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector})
	switch {
	case len(selector) == 0:
		f.Message += ", and no selector that could match pods"
		f.Remedy = "set its selector to the labels of this program's pods"
	case all == 0:
		f.Message += fmt.Sprintf(": its selector %s matches no pod", text)
		f.Remedy = fmt.Sprintf("start the pods, or give the Service their labels (kubectl get pods -n %s "+
			"--show-labels)", namespace)
	default:
		f.Message += fmt.Sprintf(" (not ready: %d)", all)
		f.Remedy = fmt.Sprintf("find out why they are not ready (kubectl describe pods -n %s -l %s)", namespace, text)
	}
	return f
}
