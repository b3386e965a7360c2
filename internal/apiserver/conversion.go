package apiserver

// This file converts objects between the versions of their kind.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"code.cloudfoundry.org/eirinix/internal/inprocess"
)

// Conversion is the conversion webhook of a CustomResourceDefinition. It has the fields of offline.Conversion.
type Conversion struct {
	CRD      string // its plural and its group
	Path     string
	Lossy    bool
	Versions []runtime.Object // an empty object of each, with its apiVersion
}

// converter is a Conversion and the handler of its program.
type converter struct {
	Conversion
	handler http.Handler
}

// has reports whether the webhook converts this version of the resource.
func (c *Conversion) has(plural string, gv schema.GroupVersion) bool {
	return c.CRD == plural+"."+gv.Group && slices.ContainsFunc(c.Versions, func(o runtime.Object) bool {
		return o.GetObjectKind().GroupVersionKind().GroupVersion() == gv
	})
}

// Convert sends the objects in one ConversionReview, as an API server does, and returns them in another version.
func (c *Conversion) Convert(ctx context.Context, handler http.Handler, apiVersion string, objects ...[]byte) ([]runtime.RawExtension, error) {
	uid := uuid.NewUUID()
	head := fmt.Sprintf(`{"kind":"ConversionReview","apiVersion":"apiextensions.k8s.io/v1","request":{"uid":%q,"desiredAPIVersion":%q,"objects":[`, uid, apiVersion)
	review := slices.Concat([]byte(head), bytes.Join(objects, []byte(",")), []byte("]}}"))
	text, err := c.post(ctx, handler, review)
	if err != nil {
		return nil, err
	}
	var answer apiextensionsv1.ConversionReview
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("the answer is no ConversionReview: %w", err)
	}
	r := cmp.Or(answer.Response, &apiextensionsv1.ConversionResponse{})
	switch {
	case r.Result.Status != metav1.StatusSuccess:
		return nil, errors.New(r.Result.Message)
	case r.UID != uid:
		return nil, fmt.Errorf("the answer has the uid %q; expected %q", r.UID, uid)
	case len(r.ConvertedObjects) != len(objects):
		return nil, fmt.Errorf("the answer holds %d objects; expected %d", len(r.ConvertedObjects), len(objects))
	}
	return r.ConvertedObjects, nil
}

// post sends a review to the handler. Its error has the words of the API server.
func (c *Conversion) post(ctx context.Context, handler http.Handler, review []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://webhook.invalid"+c.Path, bytes.NewReader(review))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := inprocess.Transport{Handler: handler}.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return text, err
}

// conversion returns the webhook that converts between two versions of a resource, or nil.
func (s *Server) conversion(plural string, from, to schema.GroupVersionKind) *converter {
	for i := range s.conversions {
		c := &s.conversions[i]
		if from.GroupKind() == to.GroupKind() && c.has(plural, from.GroupVersion()) && c.has(plural, to.GroupVersion()) {
			return c
		}
	}
	return nil
}

// convert returns an object of the request in another version of its kind. A custom resource is converted by the
// program that holds its Conversion. Without one it is converted as by strategy None, which changes only the
// apiVersion. A built-in kind cannot be converted.
func (a *admissionRun) convert(ctx context.Context, d Document, kind schema.GroupVersionKind) (Document, error) {
	if d.Absent() || d.Kind == kind {
		return d, nil
	}
	if c := a.s.conversion(a.Resource.Resource, d.Kind, kind); c != nil {
		converted, err := c.Convert(ctx, c.handler, kind.GroupVersion().String(), d.Raw)
		if err != nil {
			return Document{}, fmt.Errorf("conversion webhook for %s failed: %w", d.Kind, err)
		}
		return NewDocument(kind, converted[0].Raw), nil
	}
	if !clientgoscheme.Scheme.Recognizes(d.Kind) {
		return NewDocument(kind, d.With(func(u *unstructured.Unstructured) { u.SetGroupVersionKind(kind) }).Raw), nil
	}
	return Document{}, fmt.Errorf("without a cluster, a %s of %s cannot be converted to %s, as an API server would; send the object in that version, or name both versions in Settings.Rules", d.Kind.Kind, d.Kind.GroupVersion(), kind.GroupVersion())
}

// latest returns the object as the last mutating webhook has left it. As in an API server, it stays in the version of that
// webhook, so that the next webhook of the same version sees all of the patch.
func (a *admissionRun) latest() Document {
	if a.ahead.Absent() {
		return a.current
	}
	return a.ahead
}

// convertBack returns an object that was patched in another version to the version of the request. An API server does so
// for a webhook of a third version, and at the end. It does not convert back objects that were not patched.
func (a *admissionRun) convertBack(ctx context.Context) error {
	if a.ahead.Absent() {
		return nil
	}
	back, err := a.convert(ctx, a.ahead, a.current.Kind)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	a.current, a.ahead = back, Document{}
	return nil
}
