package eirinixtest

// This file judges the objects of CheckRoundTrip by the schemas of a CustomResourceDefinition, as an API server does.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"code.cloudfoundry.org/eirinix/internal/apiserver"
	"code.cloudfoundry.org/eirinix/internal/lograte"
)

// roundTripSchema is the schema of one version.
type roundTripSchema struct {
	*structuralschema.Structural
	values *validate.SchemaValidator
	rules  *cel.Validator // nil if there are none
}

// definitions reads the definitions. The result has them by their names.
func (h *Harness) definitions(given []any) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for i, one := range given {
		crd, err := h.definition(one)
		if err == nil && !slices.ContainsFunc(h.conversions, func(c conversion) bool { return c.CRD == crd.Name }) {
			err = fmt.Errorf("no Conversion is of %q; give the definition of one that is: %s", crd.Name, h.convertedKinds())
		}
		if err != nil {
			return nil, fmt.Errorf("eirinixtest: RoundTripOptions.Definitions[%d]: %w", i, err)
		}
		all[crd.Name] = crd
	}
	return all, nil
}

func (h *Harness) definition(given any) (*apiextensionsv1.CustomResourceDefinition, error) {
	if crd, ok := given.(*apiextensionsv1.CustomResourceDefinition); ok && crd != nil {
		return crd, nil // perhaps the scheme does not know it
	}
	d, err := h.server.Read(given)
	if err != nil {
		return nil, err
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if d.Kind != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return nil, errors.New("it is no CustomResourceDefinition of apiextensions.k8s.io/v1; give the manifest that your cluster gets")
	}
	return crd, json.Unmarshal(d.Raw, crd)
}

// newRoundTripSchema compiles the schema of a version.
func newRoundTripSchema(crd *apiextensionsv1.CustomResourceDefinition, version string) (*roundTripSchema, error) {
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 || crd.Spec.Versions[i].Schema == nil || crd.Spec.Versions[i].Schema.OpenAPIV3Schema == nil {
		return nil, fmt.Errorf("eirinixtest: RoundTripOptions.Definitions: %s has no schema of %s, which the Conversion names; add the version to spec.versions, or remove it from the Conversion", crd.Name, version)
	}
	s, props := &roundTripSchema{}, &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, props, nil)
	if err == nil {
		s.Structural, err = structuralschema.NewStructural(props)
	}
	if err == nil {
		err = structuralschema.ValidateStructural(nil, s.Structural).ToAggregate()
	}
	if err != nil {
		return nil, fmt.Errorf("eirinixtest: RoundTripOptions.Definitions: the schema of %s of %s cannot be used: %w; make it one that an API server accepts", version, crd.Name, err)
	}
	s.values = validate.NewSchemaValidator(s.ToKubeOpenAPI(), nil, "", strfmt.Default)
	s.rules = cel.NewValidator(s.Structural, true, celconfig.PerCallLimit)
	return s, nil
}

// admit returns the object as an API server stores it in its version: with defaults, and without unknown members. The
// errors are those with which the API server would refuse it.
func (v roundTripVersion) admit(d apiserver.Document) (apiserver.Document, field.ErrorList) {
	if v.schema == nil {
		return d, nil
	}
	s, ctx := v.schema.Structural, context.Background()
	var errs field.ErrorList
	d = d.With(func(u *unstructured.Unstructured) {
		setDefaults(s, u.Object)
		pruning.Prune(u.Object, s, true)
		if err := objectmeta.Coerce(nil, u.Object, s, false, false); err != nil {
			errs = append(errs, err)
		}
		errs = append(errs, v.schema.validate(u.Object)...)
		errs = append(errs, objectmeta.Validate(ctx, nil, u.Object, s, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, s, u.Object)...)
		if v.schema.rules != nil && len(errs) == 0 {
			errs, _ = v.schema.rules.Validate(ctx, nil, s, u.Object, nil, celconfig.RuntimeCELCostBudget)
		}
	})
	return d, errs
}

// validate judges by all but the rules of CEL and the types of lists.
func (s *roundTripSchema) validate(object any) (errs field.ErrorList) {
	for _, err := range s.values.Validate(object).Errors {
		var path *field.Path
		value := any("")
		if v := (*openapierrors.Validation)(nil); errors.As(err, &v) {
			path, value = field.NewPath(strings.TrimPrefix(v.Name, ".")), v.Value
		}
		errs = append(errs, field.Invalid(path, value, err.Error()))
	}
	return errs
}

// setDefaults sets defaults, and removes each null that is neither allowed nor replaced by a default. It does what
// k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting does, whose import brings etcd and gRPC to go.sum.
func setDefaults(s *structuralschema.Structural, value any) {
	if s == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, member := range s.Properties {
			if now, there := value[name]; member.Default.Object != nil && (!there || now == nil && !member.Nullable) {
				value[name] = runtime.DeepCopyJSONValue(member.Default.Object)
			}
		}
		for name, member := range value {
			schema, known := s.Properties[name]
			if !known && s.AdditionalProperties != nil && s.AdditionalProperties.Structural != nil {
				schema, known = *s.AdditionalProperties.Structural, true
			}
			if known && member == nil && !schema.Nullable {
				delete(value, name)
			} else if known {
				setDefaults(&schema, member)
			}
		}
	case []any:
		for _, item := range value {
			setDefaults(s.Items, item)
		}
	}
}

// prune removes what an API server removes from a converted object, and returns the paths.
func (v roundTripVersion) prune(d apiserver.Document) (_ apiserver.Document, paths []string) {
	if v.schema == nil {
		return d, nil
	}
	return d.With(func(u *unstructured.Unstructured) {
		paths = pruning.PruneWithOptions(u.Object, v.schema.Structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	}), paths
}

// withDefaults returns the object as an API server reads it from its storage.
func (v roundTripVersion) withDefaults(d apiserver.Document) apiserver.Document {
	if v.schema == nil {
		return d
	}
	return d.With(func(u *unstructured.Unstructured) { setDefaults(v.schema.Structural, u.Object) })
}

// refusals are the reasons for which a schema refused random objects.
type refusals struct {
	objects int
	count   map[string]int    // by path, without indexes and keys
	example map[string]string // of each path
}

var inBrackets = regexp.MustCompile(`\[[^\]]*\]`)

func (r *refusals) add(errs field.ErrorList) {
	if r.count == nil {
		r.count, r.example = map[string]int{}, map[string]string{}
	}
	r.objects++
	seen := map[string]bool{}
	for _, err := range errs {
		path := inBrackets.ReplaceAllString(err.Field, "[]")
		if path == (*field.Path)(nil).String() {
			path = "the object"
		}
		if !seen[path] {
			r.count[path]++
			seen[path] = true
		}
		if r.example[path] == "" {
			r.example[path] = lograte.Brief(err.ErrorBody(), 200)
		}
	}
}

// maxRefusals bounds the refusals in a message.
const maxRefusals = 5

// String lists the most frequent refusals.
func (r *refusals) String() string {
	paths := slices.SortedFunc(maps.Keys(r.count), func(a, b string) int {
		if r.count[a] != r.count[b] {
			return r.count[b] - r.count[a]
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	for _, path := range paths[:min(len(paths), maxRefusals)] {
		fmt.Fprintf(&b, "\n  %s (%d objects): %s", path, r.count[path], r.example[path])
	}
	return b.String()
}
