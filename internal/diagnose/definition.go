package diagnose

// This file checks the conversion webhooks of CustomResourceDefinitions. No canary reaches them: an API server calls
// them for stored objects alone.

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"code.cloudfoundry.org/eirinix/diagnosis"
	"code.cloudfoundry.org/eirinix/internal/webhookconf"
)

// incomplete is the annotation of an object that has lost values in a conversion, as package conversion writes it.
const incomplete = "conversion.eirinix.cloudfoundry.org/incomplete"

// definition holds the fields of a CustomResourceDefinition that matter here.
type definition struct {
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
		found, err := read[definition](ctx, d, crd.right("get", e.Converts))
		switch {
		case apierrors.IsNotFound(err):
			d.add(warning(diagnosis.DefinitionMissing, object, object+" does not exist, so this program waits for it",
				"create it, or correct conversion.Of.CRD"))
		case err == nil:
			d.checkConversion(crd, found, e)
			d.checkVersionsOf(object, found, e)
			d.checkInjectors(object, found.Metadata.Annotations)
			if d.Others {
				d.checkIncomplete(ctx, object, found, e)
			}
		}
	}
}

// checkIncomplete counts the objects that have lost values in conversions, among the first 10,000.
func (d *diagnostic) checkIncomplete(ctx context.Context, object string, found definition, e webhookconf.Entry) {
	plural, group, _ := strings.Cut(e.Converts, ".")
	version := ""
	for _, v := range found.Spec.Versions {
		if v.Served && (v.Storage || version == "") {
			version = v.Name
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	var names []string
	page := metav1.PartialObjectMetadataList{}
	for n := 0; n == 0 || page.Continue != "" && n < 20; n++ {
		body, err := d.Clients.Discovery().RESTClient().Get().AbsPath("/apis", group, version, plural).
			Param("limit", "500").Param("continue", page.Continue).
			SetHeader("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").DoRaw(ctx)
		if page = (metav1.PartialObjectMetadataList{}); err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err != nil && !apierrors.IsNotFound(err) { // it is not served yet
			d.noteMissingRight(err, diagnosis.Right{Group: group, Resource: plural, Verb: "list"})
		}
		for i := range page.Items {
			if o := &page.Items[i]; o.Annotations[incomplete] != "" {
				names = append(names, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"))
			}
		}
	}
	if len(names) > 0 {
		d.add(warning(diagnosis.Incomplete, object,
			fmt.Sprintf("%s%d objects of %s have lost values that their annotations could not hold, such as %s",
				map[bool]string{true: "at least "}[page.Continue != ""], len(names), object, strings.Join(names[:min(len(names), 3)], ", ")),
			"their annotation "+incomplete+" names the places in each version: write these again from a backup, in that version, and remove the annotation"))
	}
}

// checkConversion compares the registered conversion webhook with this program.
func (d *diagnostic) checkConversion(crd configuration, found definition, e webhookconf.Entry) {
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

// checkVersionsOf compares the versions of the definition with those of the Conversion.
func (d *diagnostic) checkVersionsOf(object string, found definition, e webhookconf.Entry) {
	var storage string
	var lacking []string
	needs := func(version string) {
		step := webhookconf.VersionStep(version, e.Converts).Key()
		if !slices.ContainsFunc(e.Steps, func(s webhookconf.Step) bool { return s.Key() == step }) && !slices.Contains(lacking, version) {
			lacking = append(lacking, version)
		}
	}
	for _, v := range found.Spec.Versions {
		if v.Storage {
			storage = v.Name
		}
		if v.Served || v.Storage {
			needs(v.Name)
		}
	}
	var older []string
	for _, v := range found.Status.StoredVersions {
		needs(v)
		if v != storage {
			older = append(older, v)
		}
	}
	if len(lacking) > 0 {
		d.add(problem(diagnosis.NotConverted, object,
			fmt.Sprintf("%s serves or stores %s, which the Conversion lacks, so reads and writes that need it fail", object, strings.Join(lacking, ", ")),
			"add a spoke for each to conversion.Of.Spokes; or serve them no longer, store all of their objects in another version, and only then remove them from status.storedVersions"))
	}
	if len(older) > 0 {
		d.add(note(diagnosis.StillStored, object,
			fmt.Sprintf("objects of %s may still be stored in %s, so they need this webhook even where %s alone is served", object, strings.Join(older, ", "), storage),
			fmt.Sprintf("before you remove a version or this webhook, store all objects in %s, and remove the others from status.storedVersions", storage)))
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
