package podsecurity

// This file brings up gatekeeper's webhook, with kyverno's CEL rules in its templates, and with the Rego templates in its
// module.

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/bench/peers"
)

// gatekeeperRules returns ConstraintTemplates and the constraints of their kinds.
type gatekeeperRules func(ctx context.Context, module string) (templates, constraints []*unstructured.Unstructured, err error)

func gatekeeperCEL() *Peer { return gatekeeper("gk-cel", "gatekeeper, 17 in CEL", celTemplates) }

func gatekeeperRego() *Peer {
	return gatekeeper("gk-rego", "gatekeeper, 5 of 17 in Rego", regoTemplates)
}

func gatekeeper(namespace, name string, rules gatekeeperRules) *Peer {
	return &Peer{
		Name: name, namespace: namespace,
		Beyond: "policies are objects; it also mutates, audits what exists, and looks at other objects",
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			return setUpGatekeeper(ctx, c, p, rules)
		},
	}
}

func setUpGatekeeper(ctx context.Context, c *cluster, p *Peer, rules gatekeeperRules) (func(context.Context) *exec.Cmd, error) {
	path, err := peers.Path(peersFolder, peers.Gatekeeper)
	if err != nil {
		return nil, err
	}
	module, err := peers.ModuleDir(ctx, peersFolder, peers.Gatekeeper)
	if err != nil {
		return nil, err
	}
	all, err := readObjects(filepath.Join(module, "deploy", "gatekeeper.yaml"))
	if err != nil {
		return nil, err
	}
	templates, constraints, err := rules(ctx, module)
	if err != nil {
		return nil, err
	}
	err = errors.Join(c.apply(ctx, ofKind("Namespace", all)), c.applyDefinitions(ctx, ofKind("CustomResourceDefinition", all)), c.apply(ctx, templates))
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	certificate, _ := c.certificateFiles()
	program := func(operations ...string) func(context.Context) *exec.Cmd {
		args := []string{
			"--kubeconfig=" + c.Kubeconfig(), "--debug-use-fake-pod", "--logtostderr", "--exempt-namespace=gatekeeper-system",
			"--host=127.0.0.1", "--port=" + strconv.Itoa(port), "--cert-dir=" + filepath.Dir(certificate), "--disable-cert-rotation",
			"--health-addr=127.0.0.1:0", "--prometheus-port=0", "--shutdown-delay=0",
			"--default-create-vap-for-templates=false", "--default-create-vap-binding-for-constraints=false",
		}
		for _, o := range operations {
			args = append(args, "--operation="+o)
		}
		return func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, path, args...) }
	}
	// The kinds of the constraints are made by another operation, which programs in a cluster leave to one replica.
	generator, err := startProcess(ctx, c, p.namespace+"-generate", program("generate", "status", "webhook"))
	if err != nil {
		return nil, err
	}
	for _, t := range templates {
		if err = c.awaitDefinition(ctx, t.GetName()+".constraints.gatekeeper.sh"); err != nil {
			err = fmt.Errorf("%w; its log ends with:\n%s", err, generator.logEnd())
			break
		}
	}
	if err := errors.Join(err, generator.end(), c.apply(ctx, constraints)); err != nil {
		return nil, err
	}
	hook := c.validatingWebhook(p.namespace, fmt.Sprintf("https://127.0.0.1:%d/v1/admit", port))
	hook.Webhooks[0].Rules[0].Operations = append(hook.Webhooks[0].Rules[0].Operations, admissionregistrationv1.Update)
	return program("webhook"), c.create(ctx, hook)
}

// celTemplates returns kyverno's rules as templates for gatekeeper's engine for CEL.
func celTemplates(ctx context.Context, _ string) (templates, constraints []*unstructured.Unstructured, err error) {
	all, err := celPolicies(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, spec := range all {
		if len(spec.MatchConditions) > 0 {
			return nil, nil, fmt.Errorf("policy %s has matchConditions, which templates lack", name)
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
		if err != nil {
			return nil, nil, err
		}
		source := map[string]any{"validations": fields["validations"]}
		if fields["variables"] != nil {
			source["variables"] = fields["variables"]
		}
		kind := "Rule" + strings.ReplaceAll(name, "-", "")
		templates = append(templates, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "templates.gatekeeper.sh/v1", "kind": "ConstraintTemplate", "metadata": map[string]any{"name": strings.ToLower(kind)},
			"spec": map[string]any{
				"crd": map[string]any{"spec": map[string]any{"names": map[string]any{"kind": kind}}},
				"targets": []any{map[string]any{
					"target": "admission.k8s.gatekeeper.sh",
					"code":   []any{map[string]any{"engine": "K8sNativeValidation", "source": source}},
				}},
			},
		}})
		constraints = append(constraints, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "constraints.gatekeeper.sh/v1beta1", "kind": kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"match": map[string]any{"kinds": []any{map[string]any{"apiGroups": []any{""}, "kinds": []any{"Pod"}}}}},
		}})
	}
	return templates, constraints, nil
}

// regoTemplates returns the templates that gatekeeper's module holds. The others are in a repository that is no module.
func regoTemplates(_ context.Context, module string) (templates, constraints []*unstructured.Unstructured, err error) {
	folder := filepath.Join(module, "pkg", "webhook", "testdata", "psp-all-violations")
	if templates, err = readObjects(filepath.Join(folder, "psp-templates", "*.yaml")); err != nil {
		return nil, nil, err
	}
	constraints, err = readObjects(filepath.Join(folder, "psp-constraints", "*.yaml"))
	return templates, constraints, err
}
