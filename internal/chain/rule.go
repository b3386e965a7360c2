package chain

// This file judges updates by rules about one object. An object that violated a rule before the rule existed can still be
// labelled, edited elsewhere, and deleted: only what an update makes worse, or leaves wrong while it touches it, is refused.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/jsontext"
	"code.cloudfoundry.org/eirinix/internal/patch"
	"code.cloudfoundry.org/eirinix/internal/settled"
)

// ofOld is the key of a context's value.
type ofOld struct{}

// JudgesOld reports whether a Rule with this context judges the old object of an update, and not that of the request.
func JudgesOld(ctx context.Context) bool {
	old, _ := ctx.Value(ofOld{}).(bool)
	return old
}

// rule judges the object of a CREATE or an UPDATE. If the new object of an UPDATE is refused for what the old one violated
// in the same way, and the values in question are unchanged, it is admitted with a warning.
func (r *run) rule(i int, call *Call) error {
	s := r.steps[i]
	judge := func(call *Call, obj runtime.Object, old bool) error {
		return r.attempt(i, task{call: call, newObj: obj, again: old, run: func(ctx context.Context, c *Call, _, obj runtime.Object) error {
			return s.Rule(context.WithValue(ctx, ofOld{}, old), c, obj)
		}})
	}
	newObj, err := r.ownObject(&r.object, i)
	if err != nil {
		return r.misread(i, s.New, err)
	}
	refusal := judge(call, newObj, false)
	now, refused := asDenial(s.Name, r.request, refusal)
	if !refused || r.request.Operation != admissionv1.Update || absent(r.old.raw) {
		return refusal
	}
	oldObj, err := r.ownObject(&r.old, i)
	if err == nil {
		// A rule can read the text of the request. Warnings and annotations about the old object are not the user's business.
		asOld := *r.request
		asOld.Object = asOld.OldObject
		err = judge(&Call{Request: &asOld, shared: call.shared}, oldObj, true)
	}
	before, violated := asDenial(s.Name, r.request, err)
	switch {
	case err != nil && !violated: // the refusal stands, also where failurePolicy ignores failures
		r.logFailure(r.log, failureOf(err, s.Name), "step could not judge the old object, so it refuses what the new one violates")
	case violated && r.isOld(now, before, oldObj, newObj):
		call.Warn(fmt.Sprintf("it still violates, as before this change: %s", brief(now.status.Message)))
		return nil
	}
	return refusal
}

// isOld reports whether the old object violated everything already that the new one does, and nothing of it was touched.
func (r *run) isOld(now, before *denial, oldObj, newObj runtime.Object) bool {
	if causes := causesOf(now); len(causes) > 0 {
		was, is := jsontext.TreeOf(r.request.OldObject.Raw), jsontext.TreeOf(r.request.Object.Raw)
		type violation struct{ kind, field string }
		old, origins := map[violation]bool{}, patch.OriginsOf(oldObj, newObj)
		for _, c := range causesOf(before) {
			old[violation{string(c.Type), c.Field}] = true
		}
		return !slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
			o, ok := origins.Of(c.Field)
			value := valueAt(is, o.After)
			if value.IsAbsent() && c.Type != metav1.CauseTypeFieldValueRequired {
				return true // nothing stands there, so the cause may name a wrong field
			}
			return !ok || !old[violation{string(c.Type), o.Path}] || !sameText(valueAt(was, o.Before), value)
		})
	}
	return len(causesOf(before)) == 0 && now.status.Message == before.status.Message &&
		settled.SameMembers(r.request.OldObject.Raw, r.request.Object.Raw, "metadata", "status")
}

func causesOf(d *denial) []metav1.StatusCause {
	if d.status.Details == nil {
		return nil
	}
	return d.status.Details.Causes
}

// valueAt returns the value at a place, or nil.
func valueAt(t *jsontext.Tree, place []string) *jsontext.Tree {
	for _, name := range place {
		switch {
		case t.IsObject():
			t = t.Member(name)
		case t.IsList():
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(t.Items) {
				return nil
			}
			t = t.Items[n]
		default:
			return nil
		}
	}
	return t
}

// sameText compares what the API server has written, which writes equal values alike.
func sameText(a, b *jsontext.Tree) bool {
	if a.IsAbsent() || b.IsAbsent() {
		return a.IsAbsent() && b.IsAbsent()
	}
	return bytes.Equal(a.Append(nil), b.Append(nil))
}

// both joins what the callback and the rule of a step have said. A denial is final, also if the other one has failed.
func (r *run) both(i int, err, ofRule error) error {
	name := r.steps[i].Name
	first, denied := asDenial(name, r.request, err)
	second, refused := asDenial(name, r.request, ofRule)
	switch {
	case denied && refused:
		return join([]*denial{first, second}, func(d *denial) string { return d.status.Message })
	case denied:
		return err
	case refused:
		return ofRule
	}
	return errors.Join(err, ofRule)
}
