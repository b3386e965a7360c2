package diagnose

// This file checks the conversion webhooks of CustomResourceDefinitions. No canary reaches them: an API server calls
// them for stored objects alone.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// Definition holds the fields of a CustomResourceDefinition that a diagnosis looks at.
type Definition struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Conversion webhookconf.ConversionSpec `json:"conversion"`
		Versions   []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string `json:"storedVersions"`
	} `json:"status"`
}

// checkDefinitions checks the definition of each Conversion.
func (d *diagnostic) checkDefinitions(ctx context.Context) {
	for _, e := range d.conversions {
		crd := configuration{webhookconf.CRD, e.Converts}
		object := crd.String()
		found, err := read[Definition](ctx, d, crd.right("get", e.Converts))
		switch {
		case apierrors.IsNotFound(err):
			d.add(warning(diagnosis.DefinitionMissing, object, object+" does not exist, so this program waits for it",
				"create it, or correct conversion.Of.CRD"))
		case err == nil:
			d.checkConversion(crd, found, e)
			d.checkInjectors(object, found.Metadata.Annotations)
			d.checkStored(ctx, found, e)
		}
	}
}

// checkStored checks the versions of the definition and, if others are looked at, the objects that are stored.
func (d *diagnostic) checkStored(ctx context.Context, found Definition, e webhookconf.Entry) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	var objects rest.Interface
	if d.Others {
		objects = d.Clients.Discovery().RESTClient()
	}
	findings, err := d.Stored(ctx, found, e.StepNames(), objects)
	d.findings = append(d.findings, findings...)
	if err != nil {
		plural, group, _ := strings.Cut(e.Converts, ".")
		d.noteMissingRight(err, diagnosis.Right{Group: group, Resource: plural, Verb: "list"})
	}
}

// checkConversion compares the registered conversion webhook with this program.
func (d *diagnostic) checkConversion(crd configuration, found Definition, e webhookconf.Entry) {
	annotations, registered := found.Metadata.Annotations, found.Spec.Conversion
	switch {
	case d.ownedElsewhere(crd, annotations,
		fmt.Sprintf("add the Conversion to one program alone; if that deployment is gone for good, kubectl annotate crd %s %s-, and this one takes it over",
			e.Converts, webhookconf.OwnerAnnotation)):
		return
	case annotations[webhookconf.OwnerAnnotation] == "" || registered.Strategy != webhookconf.WebhookStrategy:
		if !d.waits { // the version that is registered may have no Conversion
			d.add(problem(diagnosis.NotRegistered, crd.String(),
				fmt.Sprintf("%s has the conversion strategy %q and not this program's webhook, so its objects are not converted here", crd, registered.Strategy),
				d.register()))
		}
		return
	}
	live := hook{configuration: crd, MutatingWebhook: admissionregistrationv1.MutatingWebhook{Name: "spec.conversion", ClientConfig: registered.Webhook.ClientConfig}}
	d.compareTarget(live, e.Path)
	if d.checkBundle(live); d.Verify != nil {
		return
	}
	// This process does not serve, so it cannot verify the certificate. But it knows which bundle was registered.
	pins := annotations[webhookconf.PinsAnnotation]
	if now := webhookconf.HashesOf(live.ClientConfig.CABundle); pins != "" && len(now) > 0 && strings.Join(now, ",") != pins {
		d.add(problem(diagnosis.UnknownAuthority, crd.String(),
			fmt.Sprintf("the caBundle of %s is not the one that this program has registered", live), d.register()))
	}
}

// injectors are annotations by which another tool writes the caBundle of the object that has them, and their tool.
var injectors = map[string]string{
	"cert-manager.io/inject-ca-from":             "cert-manager",
	"cert-manager.io/inject-ca-from-secret":      "cert-manager",
	"cert-manager.io/inject-apiserver-ca":        "cert-manager",
	"service.beta.openshift.io/inject-cabundle":  "OpenShift's service CA operator",
	"service.alpha.openshift.io/inject-cabundle": "OpenShift's service CA operator",
}

// checkInjectors looks for annotations that make another tool write the caBundle too.
func (d *diagnostic) checkInjectors(object string, annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		tool := injectors[key]
		if tool == "" {
			continue
		}
		d.add(warning(diagnosis.OtherInjector, object+" annotation "+key,
			fmt.Sprintf("the annotation %s of %s makes %s write its caBundle too, so calls fail until this program has repaired it", key, object, tool),
			"remove the annotation from the manifest and from the object"))
	}
}
