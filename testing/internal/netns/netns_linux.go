package netns

// This file makes the namespace, and gives it addresses.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"syscall"

	"code.cloudfoundry.org/eirinix/testing/internal/controlplane"
)

const (
	// insideVariable is set in the network namespace.
	insideVariable = "EIRINIX_INSIDE_NAMESPACE"

	// assetsVariable names the folder with the binaries of the control plane.
	assetsVariable = "KUBEBUILDER_ASSETS"
)

// Run runs this program with its arguments in a new network namespace and returns its exit code. There it does
// nothing, and isOutside is false. environment is added to the environment there. The error is the reason why there can be
// no namespace.
func Run(environment ...string) (code int, isOutside bool, err error) {
	if os.Getenv(insideVariable) != "" {
		return 0, false, nil
	}
	environment = slices.Concat(os.Environ(), environment, []string{insideVariable + "=1"})
	if os.Getenv(assetsVariable) == "" { // they may have to be built, and Go needs the machine's network for that
		assets, err := controlplane.FindAssets(context.Background(), controlplane.Options{Progress: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1, true, nil
		}
		environment = append(environment, assetsVariable+"="+assets)
	}
	runtime.LockOSThread() // Linux ends the program with the thread that started it
	defer runtime.UnlockOSThread()
	// An interrupt reaches both, and the specs clean up after it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	command := exec.Command("/proc/self/exe", os.Args[1:]...)
	command.Env, command.Stdin, command.Stdout, command.Stderr = environment, os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = namespace()
	if err := command.Start(); err != nil {
		return 0, true, err
	}
	if err := command.Wait(); err != nil {
		if _, failed := errors.AsType[*exec.ExitError](err); !failed {
			fmt.Fprintln(os.Stderr, err)
		}
		return max(1, command.ProcessState.ExitCode()), true, nil
	}
	return 0, true, nil
}

// namespace makes the process of a command one with a network of its own. Users other than root need a user namespace
// for that, in which they are root.
func namespace() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		attributes.Cloneflags |= syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attributes
}

// setUp turns on the loopback interface, and makes all addresses of these subnets local.
func setUp(subnets ...string) error {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return fmt.Errorf("network: the loopback interface: %w", err)
	}
	up := make([]byte, syscall.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(up[4:], uint32(lo.Index))
	binary.NativeEndian.PutUint32(up[8:], syscall.IFF_UP)
	binary.NativeEndian.PutUint32(up[12:], syscall.IFF_UP) // the flags that change
	if err := request(syscall.RTM_NEWLINK, 0, up); err != nil {
		return fmt.Errorf("network: the loopback interface cannot be turned on: %w", err)
	}
	for _, subnet := range subnets {
		ip, network, err := net.ParseCIDR(subnet)
		if err != nil {
			return err
		}
		bits, _ := network.Mask.Size()
		address := []byte{syscall.AF_INET, byte(bits), 0, 0}
		address = binary.NativeEndian.AppendUint32(address, uint32(lo.Index))
		address = append(address, attribute(syscall.IFA_LOCAL, ip.To4())...)
		address = append(address, attribute(syscall.IFA_ADDRESS, ip.To4())...)
		if err := request(syscall.RTM_NEWADDR, syscall.NLM_F_CREATE|syscall.NLM_F_EXCL, address); err != nil {
			return fmt.Errorf("network: the addresses %s cannot be set: %w", subnet, err)
		}
	}
	return nil
}

// attribute encodes an attribute of a netlink message. The length of the value is a multiple of 4.
func attribute(kind uint16, value []byte) []byte {
	header := binary.NativeEndian.AppendUint16(nil, uint16(syscall.SizeofRtAttr+len(value)))
	return append(binary.NativeEndian.AppendUint16(header, kind), value...)
}

// request sends a netlink message to the kernel and returns the kernel's answer.
func request(kind, flags uint16, body []byte) error {
	socket, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	message := binary.NativeEndian.AppendUint32(nil, uint32(syscall.SizeofNlMsghdr+len(body)))
	message = binary.NativeEndian.AppendUint16(message, kind)
	message = binary.NativeEndian.AppendUint16(message, flags|syscall.NLM_F_REQUEST|syscall.NLM_F_ACK)
	message = append(message, make([]byte, 8)...) // sequence number and sender, which one request does not need
	message = append(message, body...)
	if err := syscall.Sendto(socket, message, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, os.Getpagesize())
	n, _, err := syscall.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}
	messages, err := syscall.ParseNetlinkMessage(answer[:n])
	if err != nil {
		return err
	}
	if len(messages) == 0 || messages[0].Header.Type != syscall.NLMSG_ERROR || len(messages[0].Data) < 4 {
		return errors.New("the kernel's answer is no acknowledgement")
	}
	if code := int32(binary.NativeEndian.Uint32(messages[0].Data)); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}
