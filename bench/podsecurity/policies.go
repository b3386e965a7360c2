package podsecurity

// This file restates kyverno's CEL policies as policies of the API server.

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const inAPIServer = "runs in the API server: there is no call, no certificate and no process"

func policiesEach() *Peer {
	return &Peer{
		Name: "ValidatingAdmissionPolicy, 17", namespace: "vap", Beyond: inAPIServer,
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			all, err := celPolicies(ctx)
			if err != nil {
				return nil, err
			}
			for name, spec := range all {
				if err := c.applyPolicy(ctx, p.namespace, name, spec); err != nil {
					return nil, err
				}
			}
			return nil, nil
		},
	}
}

func policiesOne() *Peer {
	return &Peer{
		Name: "ValidatingAdmissionPolicy, one", namespace: "vap-one", Beyond: inAPIServer,
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			all, err := celPolicies(ctx)
			if err != nil {
				return nil, err
			}
			one, err := merged(all)
			if err != nil {
				return nil, err
			}
			return nil, c.applyPolicy(ctx, p.namespace, "pod-security", one)
		},
	}
}

// celPolicies returns the specs of kyverno's policies by name. The fields that both kinds of policies have are the same.
func celPolicies(ctx context.Context) (map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec, error) {
	policies, err := kyvernoPolicies(ctx, validatingPolicy)
	if err != nil {
		return nil, err
	}
	all := map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec{}
	for _, o := range policies {
		var p admissionregistrationv1.ValidatingAdmissionPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
			return nil, fmt.Errorf("policy %s: %w", o.GetName(), err)
		}
		all[o.GetName()] = p.Spec
	}
	return all, nil
}

// variable finds the uses of variables in CEL.
var variable = regexp.MustCompile(`\bvariables\.([A-Za-z_][A-Za-z0-9_]*)`)

// merged returns one policy with all validations. Equal variables are shared. Others of the same name get a number.
func merged(all map[string]admissionregistrationv1.ValidatingAdmissionPolicySpec) (one admissionregistrationv1.ValidatingAdmissionPolicySpec, err error) {
	known := map[string]string{} // expressions of variables, by name
	for _, spec := range inOrder(all) {
		if len(spec.MatchConditions) > 0 {
			return one, errors.New("a policy has matchConditions, which cannot be merged")
		}
		names := map[string]string{}
		in := func(expression string) string {
			return variable.ReplaceAllStringFunc(expression, func(use string) string { return "variables." + names[strings.TrimPrefix(use, "variables.")] })
		}
		for _, v := range spec.Variables {
			name, expression := v.Name, in(v.Expression)
			for i := 2; known[name] != "" && known[name] != expression; i++ {
				name = fmt.Sprintf("%s%d", v.Name, i)
			}
			if names[v.Name] = name; known[name] == "" {
				known[name] = expression
				one.Variables = append(one.Variables, admissionregistrationv1.Variable{Name: name, Expression: expression})
			}
		}
		for _, v := range spec.Validations {
			v.Expression, v.MessageExpression = in(v.Expression), in(v.MessageExpression)
			one.Validations = append(one.Validations, v)
		}
		one.MatchConstraints, one.FailurePolicy = spec.MatchConstraints, spec.FailurePolicy
	}
	return one, nil
}

// applyPolicy creates a policy that refuses pods in one namespace.
func (c *cluster) applyPolicy(ctx context.Context, namespace, name string, spec admissionregistrationv1.ValidatingAdmissionPolicySpec) error {
	meta := metav1.ObjectMeta{Name: namespace + "-" + name}
	return c.create(ctx,
		&admissionregistrationv1.ValidatingAdmissionPolicy{TypeMeta: metav1.TypeMeta{Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: meta, Spec: spec},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: meta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        meta.Name,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
				MatchResources: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"peer": namespace}},
				},
			},
		})
}
