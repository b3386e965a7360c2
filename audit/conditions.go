package audit

// This file evaluates matchConditions with the API server's own code.

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"code.cloudfoundry.org/eirinix/internal/audit"
	"code.cloudfoundry.org/eirinix/internal/conditions"
)

// conditionsOf compiles matchConditions. An audit does not evaluate conditions that look at the user or at rights, so the
// authorizer of these has no opinion.
func conditionsOf(all []admissionregistrationv1.MatchCondition) (audit.Condition, error) {
	const name = "audit"
	if err := conditions.Check(name, all); err != nil {
		return nil, err
	}
	matcher := conditions.Matcher(admissionregistrationv1.MutatingWebhook{Name: name, MatchConditions: all})
	return func(ctx context.Context, req *admissionv1.AdmissionRequest) (bool, error) {
		kind := schema.GroupVersionKind(req.Kind)
		object, err := treeOf(req.Object)
		if err != nil {
			return false, err
		}
		oldObject, err := treeOf(req.OldObject)
		if err != nil {
			return false, err
		}
		info := &user.DefaultInfo{Name: req.UserInfo.Username, UID: req.UserInfo.UID, Groups: req.UserInfo.Groups}
		attributes := admission.NewAttributesRecord(object, oldObject, kind, req.Namespace, req.Name,
			schema.GroupVersionResource(req.Resource), req.SubResource, admission.Operation(req.Operation), nil, req.DryRun != nil && *req.DryRun, info)
		versioned := &admission.VersionedAttributes{
			Attributes: attributes, VersionedKind: kind,
			VersionedObject: admission.NewLazyObject(object), VersionedOldObject: admission.NewLazyObject(oldObject),
		}
		result := matcher.Match(ctx, versioned, nil, authorizer.AuthorizerFunc(noOpinion))
		return result.Matches, result.Error
	}, nil
}

func treeOf(raw runtime.RawExtension) (runtime.Object, error) {
	if len(raw.Raw) == 0 {
		return nil, nil
	}
	tree := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw.Raw, &tree.Object); err != nil {
		return nil, err
	}
	return tree, nil
}

func noOpinion(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "an audit has no user", nil
}
