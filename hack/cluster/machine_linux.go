package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

var (
	//go:embed machine.sh
	machineScript []byte
	//go:embed containerd.toml
	containerdConfig []byte
)

// environment is that of all processes on a machine: ours means nothing there.
var environment = []string{
	"PATH=" + programsDir + ":" + programsDir + "/node:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"KUBECONFIG=/etc/kubernetes/admin.conf",
}

// machine is one machine of the cluster, running or not.
type machine struct {
	*cluster
	name string
}

func (c *cluster) machine(name string) machine { return machine{c, name} }

func (m machine) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir, "machines", m.name}, elem...)...)
}

// disk is where the host sees a path of the machine that outlives its reboots.
func (m machine) disk(path string) string { return m.path("disk", path) }

func (m machine) machineCgroup() string { return m.cgroup + "/" + m.name }

// controlPlanes are the machines that were made to be one, oldest first.
func (c *cluster) controlPlanes() []machine {
	marks, _ := filepath.Glob(c.machine("*").controlPlaneMark()) // The pattern is a good one.
	var found []machine
	numbers := map[string]int{}
	for _, mark := range marks {
		m := c.machine(filepath.Base(filepath.Dir(mark)))
		if number, err := m.number(); err == nil { // It may be going just now.
			numbers[m.name] = number
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b machine) int { return numbers[a.name] - numbers[b.name] })
	return found
}

func (m machine) controlPlaneMark() string { return m.path("is-control-plane") }

// create makes a new machine, boots it, and gives it its images.
func (m machine) create(ctx context.Context, controlPlane bool) error {
	if err := os.MkdirAll(filepath.Dir(m.path()), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(m.path(), 0o755); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("there is a machine %s already", m.name)
	} else if err != nil {
		return err
	}
	number, err := m.takeNumber(m.name)
	if err != nil {
		return err
	}
	for _, dir := range []string{m.path("scratch"), m.disk("var/log"), m.disk("etc/containerd"), m.disk("etc/kubernetes"), m.disk("etc/cni/net.d")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	err = errors.Join(
		os.WriteFile(m.path("number"), []byte(strconv.Itoa(number)), 0o644),
		os.WriteFile(m.path("machine.sh"), machineScript, 0o755),
		os.WriteFile(m.disk("etc/containerd/config.toml"), containerdConfig, 0o644),
		m.putPrograms(machinePrograms...),
		m.boot(ctx),
	)
	if err != nil {
		return err
	}
	if err := m.importImages(ctx); err != nil || !controlPlane {
		return err
	}
	return errors.Join(m.importControlPlane(ctx), os.WriteFile(m.controlPlaneMark(), nil, 0o644))
}

// takeNumber gives each machine a number of its own, from which its addresses follow; machines are added at once.
func (c *cluster) takeNumber(name string) (int, error) {
	dir := filepath.Join(c.dir, "numbers")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	for number := routerNumber + 1; number < 250; number++ {
		file, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(number)), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return 0, err
		}
		_, err = fmt.Fprintln(file, name)
		return number, errors.Join(err, file.Close())
	}
	return 0, errors.New("no more than 248 machines")
}

func (m machine) number() (int, error) {
	content, err := os.ReadFile(m.path("number"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("there is no machine %s", m.name)
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(content))
}

// boot starts the machine's init and returns when containerd answers.
func (m machine) boot(ctx context.Context) error {
	number, err := m.number()
	if err != nil {
		return err
	}
	console, err := os.OpenFile(m.disk("var/log/console.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	// No context: the machine outlives us.
	init := exec.Command("bash", m.path("machine.sh"), m.name, m.path())
	init.Env = environment
	init.Stdout, init.Stderr = console, console
	init.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := startInCgroup(m.machineCgroup(), init); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- init.Wait() }()
	if err := os.WriteFile(m.path("pid"), []byte(strconv.Itoa(init.Process.Pid)), 0o644); err != nil {
		return err
	}
	if err := m.plugIn(ctx, number, init.Process.Pid); err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("its init has ended: %w", err)
		default:
		}
		_, last = m.run(ctx, nil, "ctr", "version")
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("boot %s: %w", m.name, errors.Join(err, last))
	}
	return nil
}

// pid is the machine's init, as the host sees it.
func (m machine) pid() (int, error) {
	return m.pidIn(m.path("pid"), m.machineCgroup())
}

// pidIn reads a pid, and does not believe it if the process is not in the cgroup: pids are used again.
func (c *cluster) pidIn(file, cgroup string) (int, error) {
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%s is not running", filepath.Base(filepath.Dir(file)))
	}
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(content))
	if err != nil {
		return 0, err
	}
	running, err := cgroupProcesses(cgroup)
	if err != nil {
		return 0, err
	}
	if !running[pid] {
		return 0, fmt.Errorf("%s is not running", filepath.Base(filepath.Dir(file)))
	}
	return pid, nil
}

// command runs on the machine once it is started.
func (m machine) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	pid, err := m.pid()
	if err != nil {
		return nil, err
	}
	enter := []string{"--target", strconv.Itoa(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(enter, "--"), args...)...)
	cmd.Env = append(slices.Clip(environment), "TERM="+os.Getenv("TERM"))
	return cmd, nil
}

// run returns what the command has written; an error has it as well.
func (m machine) run(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd, err := m.command(ctx, args...)
	if err != nil {
		return "", err
	}
	var output bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &output, &output
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s on %s: %w\n%s", strings.Join(args, " "), m.name, err, output.String())
	}
	return output.String(), nil
}

// kill pulls the plug: nothing on the machine gets the chance to end in an orderly way, and nobody is told that its connections have ended.
// The disk stays.
func (c *cluster) kill(ctx context.Context, name string) error {
	m := c.machine(name)
	if _, err := m.number(); err != nil {
		return err
	}
	pid, err := m.pid()
	if err != nil {
		return err
	}
	// A kernel whose processes are killed says goodbye to their peers, so the cable goes first, with both of its ends: a network namespace
	// stays for minutes while its kernel tries to say goodbye. With init all processes end at once.
	if err := errors.Join(m.unplug(), syscall.Kill(pid, syscall.SIGKILL)); err != nil {
		return err
	}
	return removeCgroup(ctx, m.machineCgroup())
}

// reboot boots the machine from its disk, after a power cut if it runs.
func (c *cluster) reboot(ctx context.Context, name string) error {
	m := c.machine(name)
	if _, err := m.number(); err != nil {
		return err
	}
	if _, err := m.pid(); err == nil {
		if err := c.kill(ctx, name); err != nil {
			return err
		}
	} else if err := removeCgroup(ctx, m.machineCgroup()); err != nil { // Its init has ended by itself.
		return err
	}
	return m.boot(ctx)
}

func (c *cluster) remove(ctx context.Context, name string) error {
	m := c.machine(name)
	number, err := m.number()
	if err != nil {
		return err
	}
	return errors.Join(
		removeCgroup(ctx, m.machineCgroup()),
		os.RemoveAll(m.path()),
		os.Remove(filepath.Join(c.dir, "numbers", strconv.Itoa(number))),
	)
}
