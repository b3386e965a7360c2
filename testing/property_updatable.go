package eirinixtest

// This file implements CheckUpdatable, which looks for what a rule does to the objects that are older than it.

import (
	"errors"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
)

const updatable = "updatable"

// violates reports whether a step refuses the creation of an object.
func (h *Harness) violates(object any, options []RequestOption) (*Denial, error) {
	create := h.candidates(object, options)[0]
	if create.Operation != admissionv1.Create || create.Subresource != "" {
		return nil, nil
	}
	result, err := h.send(create)
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: %w", err)
	}
	return result.Denial, nil
}

var errNothingRefused = errors.New("eirinixtest: no step refuses the creation of this object, so that nothing was checked: give one that violates a rule")

func (h *Harness) updatable(object any, options []RequestOption) error {
	defer h.log.mute()()
	denial, err := h.violates(object, options)
	if err != nil {
		return err
	} else if denial == nil {
		return errNothingRefused
	}
	r := h.candidates(object, options)[0]
	d, err := h.server.Read(r.Object)
	if err != nil {
		return fmt.Errorf("eirinixtest: %w", err)
	}
	var refused []string
	for _, u := range updatesOf(d, denial.Details != nil && len(denial.Details.Causes) > 0) {
		r.Operation, r.OldObject, r.Object, r.Subresource = admissionv1.Update, u.old, u.new, u.subresource
		result, err := h.send(r)
		switch {
		case err != nil:
			return fmt.Errorf("eirinixtest: %w", err)
		case result.Allowed, result.Denial == nil && apierrors.IsInvalid(result.Err): // by the API server, as for an immutable field
			continue
		}
		refused = append(refused, fmt.Sprintf("%s: %v", u.what, result.Err))
	}
	if len(refused) == 0 {
		return nil
	}
	return &violation{
		property: updatable, proof: strings.Join(refused, "\n"),
		what: "an object that is older than the rule can no longer be changed where it does not violate it, or cannot be deleted",
		remedy: "judge the object in Validation.Rule, and leave Update for transitions. Deny with eirinix.Invalid and the path of each value that violates, " +
			"so that other fields can change. Leave out Settings.EveryUpdate, or let finalizers be removed.",
	}
}

// update is an update of an object that makes nothing worse.
type update struct {
	what        string
	old, new    apiserver.Document
	subresource string
}

// updatesOf returns updates as users, controllers and the API server's own storage migration send them. elsewhere adds a
// change of spec, which a denial without fields is allowed to refuse.
func updatesOf(d apiserver.Document, elsewhere bool) []update {
	changed := func(change func(*unstructured.Unstructured)) apiserver.Document { return d.With(change) }
	member := func(name string) apiserver.Document {
		return changed(func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, name, "eirinixtest") // fails if it is no map, and changes nothing
		})
	}
	all := []update{
		{what: "a label is added", new: changed(func(u *unstructured.Unstructured) {
			labels := u.GetLabels()
			if labels == nil {
				labels = map[string]string{}
			}
			labels["eirinixtest.example/label"] = "1"
			u.SetLabels(labels)
		})},
		{what: "an annotation is added", new: touched(d)},
		{what: "it is stored anew, as a storage migration does it", new: d},
		{what: "its status is written", new: member("status"), subresource: "status"},
	}
	if elsewhere {
		all = append(all, update{what: "another field of its spec changes", new: member("spec")})
	}
	for i := range all {
		all[i].old = d
	}
	for _, f := range apiserver.Finalizing(d) {
		all = append(all, update{what: "finalizer " + f.Finalizer + " is removed while it is being deleted", old: f.Old, new: f.New})
	}
	return all
}
