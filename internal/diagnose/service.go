package diagnose

// This file checks the Service that the API server calls, its endpoints and its ports.

import (
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
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// backend is a Service and what is behind one of its ports.
type backend struct {
	service corev1.Service
	found   bool // service could be read
	missing bool // it does not exist
	known   bool // it and its EndpointSlices could be read, or it does not exist

	hasPort    bool
	podPort    int32 // to which the Service forwards the calls; 0 if that is unknown
	ready, all int   // endpoints behind the port
}

// lookup reads the Service that is called and its EndpointSlices, and notes missing rights.
func (d *diagnostic) lookup(ctx context.Context, at webhookconf.Target) (b backend) {
	right := diagnosis.Right{Resource: "services", Verb: "get", Namespace: at.Namespace, Name: at.Service}
	var err error
	if b.service, err = read[corev1.Service](ctx, d, right); err != nil {
		b.missing = apierrors.IsNotFound(err)
		b.known = b.missing
		return b
	}
	b.found = true
	var endpoints discoveryv1.EndpointSliceList
	if !b.external() {
		right = diagnosis.Right{Group: discoveryv1.GroupName, Resource: "endpointslices", Verb: "list", Namespace: at.Namespace}
		endpoints, err = read[discoveryv1.EndpointSliceList](ctx, d, right, discoveryv1.LabelServiceName+"="+at.Service)
	}
	b.known = err == nil
	b.follow(at.Port, endpoints.Items)
	return b
}

// follow finds the port of that number, and the endpoints behind it. EndpointSlices identify it by its name.
func (b *backend) follow(number int32, endpoints []discoveryv1.EndpointSlice) {
	i := slices.IndexFunc(b.service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == number })
	if i < 0 {
		return
	}
	port := b.service.Spec.Ports[i]
	b.hasPort, b.podPort = true, port.TargetPort.IntVal // 0 for the name of a port
	for _, s := range endpoints {
		i := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return p.Name != nil && *p.Name == port.Name })
		if i < 0 || len(s.Endpoints) == 0 {
			continue
		}
		b.podPort = ptr.Deref(s.Ports[i].Port, b.podPort)
		for _, e := range s.Endpoints {
			b.all++
			if ptr.Deref(e.Conditions.Ready, true) {
				b.ready++
			}
		}
	}
}

func (b backend) external() bool { return b.service.Spec.Type == corev1.ServiceTypeExternalName }

func (b backend) headless() bool { return b.service.Spec.ClusterIP == corev1.ClusterIPNone }

// judgeService reports faults of the Service.
func (d *diagnostic) judgeService(ctx context.Context) {
	fault := func(code diagnosis.Code) diagnosis.Finding { return d.brokenPath(ctx, code, "") }
	b := d.backend
	switch {
	case b.missing:
		d.add(fault(diagnosis.ServiceMissing))
		return
	case !b.found || b.external():
		return
	case b.headless():
		f := fault(diagnosis.ServiceUnusable)
		f.Severity = diagnosis.Warning // an API server that resolves endpoints itself can call it
		d.add(f)
	}
	if !b.hasPort {
		d.add(fault(diagnosis.PortMismatch))
	} else if b.ready == 0 && b.known {
		d.add(fault(diagnosis.NoReadyEndpoints))
	}
}

// judgePorts compares the port that calls arrive at with the port that this process listens on, once calls are known
// not to arrive. Before that, an address translation between the two ports does not matter.
func (d *diagnostic) judgePorts() {
	_, listening := d.own()
	target, arrives := d.Options.Target, d.Options.Target.Port
	if d.serviceMode() && !d.backend.external() {
		arrives = d.backend.podPort
	}
	lost := slices.ContainsFunc(d.findings, func(f diagnosis.Finding) bool {
		return slices.Contains(symptoms, f.Code) || f.Code == diagnosis.BadAnswer
	})
	if !lost || listening == 0 || arrives == 0 || listening == arrives {
		return
	}
	f := problem(diagnosis.PortMismatch, target.String(),
		fmt.Sprintf("calls to %s arrive at port %d, but this process listens on port %d", target, arrives, listening),
		fmt.Sprintf("set ManagerOptions.Port to %d, or ListenAddress to port %d, or forward the calls to the right port", listening, arrives))
	if d.serviceMode() && !d.backend.external() {
		f.Object = target.Program()
		f.Remedy = fmt.Sprintf("set the targetPort of %s to %d, or ManagerOptions.ListenAddress to port %d", f.Object, listening, arrives)
	}
	d.add(f)
}

// describeService returns the message and the remedy for a fault of the Service. They are empty for any other fault.
func (d *diagnostic) describeService(code diagnosis.Code) (message, remedy string) {
	service := d.Options.Target.Program()
	switch code {
	case diagnosis.ServiceMissing:
		return service + ", which the API server calls, does not exist",
			"create it, or correct ManagerOptions.ServiceName and WebhookNamespace of all replicas at once, since the address identifies the program"
	case diagnosis.ServiceUnusable:
		return service + " is of a kind that the API server does not call", "set its type to ClusterIP, with a cluster IP"
	case diagnosis.PortMismatch:
		port := d.Options.Target.Port
		remedy = fmt.Sprintf("add port %d to it, or set ManagerOptions.Port to one that it has", port)
		if d.backend.found {
			has := list.Of(d.backend.service.Spec.Ports, func(p corev1.ServicePort) string { return fmt.Sprint(p.Port) })
			remedy += " (" + strings.Join(has, ", ") + ")"
		}
		return fmt.Sprintf("%s does not have the registered port %d", service, port), remedy
	case diagnosis.NoReadyEndpoints:
		reason, remedy := d.whyNotReady()
		return service + " has no ready endpoint" + reason, remedy
	}
	return "", ""
}

// whyNotReady returns the reason why the Service has no ready endpoint, if it is known, and the remedy.
func (d *diagnostic) whyNotReady() (reason, remedy string) {
	selector, namespace := d.backend.service.Spec.Selector, d.Options.Target.Namespace
	text := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: selector})
	switch {
	case !d.backend.found:
		return "", "find out why the pods behind it are not ready, and whether its selector matches them"
	case len(selector) == 0:
		return ", and no selector that could match pods", "set its selector to the labels of this program's pods"
	case d.backend.all == 0:
		return fmt.Sprintf(": its selector %s matches no pod", text),
			fmt.Sprintf("start the pods, or give the Service their labels (kubectl get pods -n %s --show-labels)", namespace)
	}
	return fmt.Sprintf(" (not ready: %d)", d.backend.all),
		fmt.Sprintf("find out why they are not ready (kubectl describe pods -n %s -l %s)", namespace, text)
}
