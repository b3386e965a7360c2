package preview_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix"
	"code.cloudfoundry.org/eirinix/preview"
)

// A program offers its preview with one line, here as the command "preview".
func ExampleCommand() {
	run := func(ctx context.Context, args []string) error {
		x := eirinix.NewManager(eirinix.ManagerOptions{Host: "webhook.example.org"})
		if err := x.AddExtension(noRoot); err != nil {
			return err
		}
		if len(args) > 0 && args[0] == "preview" {
			return preview.Command(ctx, x, args[1:])
		}
		return x.Run(ctx)
	}
	err := run(context.Background(), []string{"preview", "testdata/pods.yaml"})
	fmt.Println(err) // log.Fatal would end with code 1
	// Output:
	// testdata/pods.yaml, document 1: create Pod nice in namespace default
	//   is allowed, unchanged
	//   warning: thank you
	//   ran: no-root
	//
	// testdata/pods.yaml, document 2: create Pod naughty in namespace default
	//   would be denied with 403 Forbidden by no-root: naughty would run as root
	//   ran: no-root
	//
	// 2 objects: 0 changed, 1 denied
	// of 2 objects, 1 would be denied
}

// noRoot refuses pods that run as root.
var noRoot = eirinix.Validation[*corev1.Pod]{ID: "no-root", Create: func(_ context.Context, c *eirinix.Call, pod *corev1.Pod) error {
	if s := pod.Spec.SecurityContext; s == nil || s.RunAsUser == nil || *s.RunAsUser == 0 {
		return eirinix.Deny("%s would run as root", pod.Name)
	}
	c.Warn("thank you")
	return nil
}}
