package podsecurity

// This file brings up kyverno's admission controller with the policies of its chart.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/bench/peers"
)

// The kinds of policies in kyverno's chart: in CEL, and in patterns.
const (
	validatingPolicy = "ValidatingPolicy"
	clusterPolicy    = "ClusterPolicy"
)

// NameKyverno is the beginning of the names of kyverno's peers.
const NameKyverno = "kyverno"

const kyvernoNamespace = "kyverno"

func kyvernoCEL() *Peer { return kyverno("ky-cel", NameKyverno+", 17 in CEL", validatingPolicy) }

func kyvernoPatterns() *Peer {
	return kyverno("ky-patterns", NameKyverno+", 17 as patterns", clusterPolicy)
}

func kyverno(namespace, name, kind string) *Peer {
	return &Peer{
		Name: name, namespace: namespace,
		Beyond: "policies are objects; it also mutates, generates, makes exceptions, and reports; registers itself",
		setUp: func(ctx context.Context, c *cluster, p *Peer) (func(context.Context) *exec.Cmd, error) {
			return setUpKyverno(ctx, c, p, kind)
		},
	}
}

// kyvernoPolicies returns the policies for the standard "restricted".
func kyvernoPolicies(ctx context.Context, kind string) ([]*unstructured.Unstructured, error) {
	all, err := renderChart(ctx, "kyverno-policies", map[string]any{
		"podSecurityStandard": "restricted", "validationFailureAction": "Enforce", "background": false, "policyType": kind,
	})
	if err != nil {
		return nil, err
	}
	if all = ofKind(kind, all); len(all) != 17 {
		return nil, fmt.Errorf("kyverno's chart has %d policies of kind %s, and not 17", len(all), kind)
	}
	return all, nil
}

func setUpKyverno(ctx context.Context, c *cluster, p *Peer, kind string) (func(context.Context) *exec.Cmd, error) {
	path, err := peers.Path(peersFolder, peers.Kyverno)
	if err != nil {
		return nil, err
	}
	module, err := peers.ModuleDir(ctx, peersFolder, peers.Kyverno)
	if err != nil {
		return nil, err
	}
	for _, folder := range []string{"kyverno", "policies.kyverno.io", "policyreport", "reports"} {
		definitions, err := readObjects(filepath.Join(module, "config", "crds", folder, "*.yaml"))
		if err == nil {
			err = c.applyDefinitions(ctx, definitions)
		}
		if err != nil {
			return nil, err
		}
	}
	policies, err := kyvernoPolicies(ctx, kind)
	if err != nil {
		return nil, err
	}
	// Reports and events are off, as in kyverno's own load test.
	all, err := renderChart(ctx, "kyverno", map[string]any{
		"config": map[string]any{"webhooks": map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"peer": p.namespace}}}},
		"features": map[string]any{
			"admissionReports":                  map[string]any{"enabled": false},
			"omitEvents":                        map[string]any{"eventTypes": []string{"PolicyViolation", "PolicyApplied", "PolicyError", "PolicySkipped"}},
			"generateValidatingAdmissionPolicy": map[string]any{"enabled": false},
		},
	})
	if err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{TypeMeta: metav1.TypeMeta{Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: kyvernoNamespace}}
	if err := errors.Join(c.create(ctx, ns), c.apply(ctx, ofKind("ConfigMap", all)), c.apply(ctx, ofKind("ServiceAccount", all)), c.apply(ctx, policies)); err != nil {
		return nil, err
	}
	args, environment, err := kyvernoContainer(all)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	args = append(args, "--kubeconfig="+c.Kubeconfig(), "--serverIP="+address, "--webhookServerHost=127.0.0.1", "--webhookServerPort="+strconv.Itoa(port),
		"--disableMetrics=true", "--controllerRuntimeMetricsAddress=0")
	return func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Env = append(os.Environ(), environment...)
		return cmd
	}, nil
}

// kyvernoContainer returns the arguments and the environment of the admission controller in kyverno's chart.
func kyvernoContainer(all []*unstructured.Unstructured) (args, environment []string, err error) {
	const name = "kyverno-admission-controller"
	for _, o := range ofKind("Deployment", all) {
		if o.GetName() != name {
			continue
		}
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
			return nil, nil, err
		}
		container := d.Spec.Template.Spec.Containers[0]
		for _, v := range container.Env {
			switch v.Name {
			case "KYVERNO_NAMESPACE":
				v.Value = kyvernoNamespace
			case "KYVERNO_POD_NAME":
				v.Value = name + "-0"
			case "TUF_ROOT":
				continue // a folder of the container
			}
			environment = append(environment, v.Name+"="+v.Value)
		}
		return container.Args, environment, nil
	}
	return nil, nil, fmt.Errorf("kyverno's chart has no Deployment %s", name)
}
