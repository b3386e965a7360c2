package cluster

// This file loads the configuration of the connection to the cluster.

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// LoadConfig returns the connection's configuration and the namespace of its context. It reads the kubeconfig at that
// path. If the path is empty, it uses the service account of the pod, or else the kubeconfig that kubectl finds. Errors
// name the option of the Manager.
func LoadConfig(kubeconfig string) (*rest.Config, string, error) {
	if kubeconfig == "" {
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, "", nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", fmt.Errorf("eirinix: this is a pod without usable service account (automountServiceAccountToken?); mount one, or set ManagerOptions.KubeConfig: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // $KUBECONFIG, ~/.kube/config
	rules.ExplicitPath = kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	cfg, err := loader.ClientConfig()
	switch {
	case err == nil:
	case kubeconfig != "":
		return nil, "", fmt.Errorf("eirinix: ManagerOptions.KubeConfig %q cannot be used; give the path of a kubeconfig file: %w", kubeconfig, err)
	case clientcmd.IsEmptyConfig(err):
		return nil, "", fmt.Errorf("eirinix: no kubeconfig found: this is no pod, and neither %s nor $KUBECONFIG holds one; set ManagerOptions.KubeConfig to the path of one", clientcmd.RecommendedHomeFile)
	default:
		return nil, "", fmt.Errorf("eirinix: the kubeconfig (%s) cannot be used: %w", strings.Join(rules.GetLoadingPrecedence(), ", "), err)
	}
	namespace, given, err := loader.Namespace()
	if err != nil || !given && namespace == metav1.NamespaceDefault {
		namespace = ""
	}
	return cfg, namespace, nil
}
