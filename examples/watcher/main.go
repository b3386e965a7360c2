// Watcher prints the events of pods. It neither serves nor registers, so it needs no address, and no rights except list
// and watch on pods.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"code.cloudfoundry.org/eirinix"
)

type printer struct{}

// Handle receives one event at a time, in order.
func (printer) Handle(_ eirinix.Manager, event watch.Event) {
	pod, ok := event.Object.(*corev1.Pod)
	if !ok {
		return
	}
	fmt.Printf("%-8s %s/%s %s\n", event.Type, pod.Namespace, pod.Name, pod.Status.Phase)
}

func main() {
	log.SetFlags(0)
	o := eirinix.ManagerOptions{}
	flag.StringVar(&o.Namespace, "namespace", os.Getenv("WATCHER_NAMESPACE"), "namespace to watch; empty means all [$WATCHER_NAMESPACE]")
	flag.StringVar(&o.KubeConfig, "kubeconfig", "", "path of a kubeconfig; empty means the pod's service account, else $KUBECONFIG, else ~/.kube/config")
	flag.StringVar(&o.WatcherStartRV, "from", "", "resourceVersion after which events are shown; empty means from now on")
	flag.Parse()

	x := eirinix.NewManager(o)
	x.AddWatcher(printer{})
	if err := x.Watch(); err != nil { // until SIGINT or SIGTERM
		log.Fatal(err)
	}
}
