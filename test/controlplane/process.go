package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	pollInterval = 50 * time.Millisecond
	// stopGrace is how long a process may take to end after SIGTERM. A kube-apiserver under load has
	// been seen to take ten seconds.
	stopGrace = 30 * time.Second
	// tailLines is how much of a log an error shows.
	tailLines = 15
)

// Process is a child process that writes to a log file. Its methods may be called at once.
type Process struct {
	name     string
	logPath  string
	logStart int64 // where in the log this process begins: a restarted one appends
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended; cmd.ProcessState is valid from then on
}

// StartProcess starts binary with its output appended to logPath. name is for messages.
func StartProcess(name, logPath, binary string, args ...string) (*Process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	logStart, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		log.Close()
		return nil, err
	}
	p := &Process{name: name, logPath: logPath, logStart: logStart, cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = childAttributes()
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the *thread* that forked ends, not the process.
		// So this thread is kept for as long as the child lives, and goes when the goroutine returns.
		runtime.LockOSThread()
		defer log.Close()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = p.cmd.Wait() // How it ended is in ProcessState.
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// PID is the process id; it means nothing once Done is closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Command is the program and its arguments.
func (p *Process) Command() []string { return slices.Clone(p.cmd.Args) }

// LogPath is the file with everything the process printed.
func (p *Process) LogPath() string { return p.logPath }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait returns the exit code once the process has ended: -1 if a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s still runs: %w", p.name, context.Cause(ctx))
	}
}

// Stop asks the process to end, waits, and kills it if it does not listen, which is an error.
// Stopping a process that has ended is fine.
func (p *Process) Stop() error {
	_ = p.signal(syscall.SIGTERM)
	_ = p.Continue() // A paused process would not see the SIGTERM.
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	if _, err := p.Wait(ctx); err == nil {
		return nil
	}
	if err := p.Kill(); err != nil {
		return err
	}
	return fmt.Errorf("%s did not end within %s of SIGTERM and was killed; its log is %s", p.name, stopGrace, p.logPath)
}

// Kill ends the process at once and returns when it is gone.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Pause suspends the process, as a stalled machine would; its connections stay open.
func (p *Process) Pause() error { return p.signal(syscall.SIGSTOP) }

// Continue ends a Pause.
func (p *Process) Continue() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Log is what this process has printed so far.
func (p *Process) Log() (string, error) {
	content, err := os.ReadFile(p.logPath)
	if err != nil {
		return "", err
	}
	return string(content[min(p.logStart, int64(len(content))):]), nil
}

// logTail is for the end of an error message; it is about the message, so it swallows its own errors.
func (p *Process) logTail() string {
	log, _ := p.Log()
	lines := bytes.Split(bytes.TrimSpace([]byte(log)), []byte("\n"))
	lines = lines[max(0, len(lines)-tailLines):]
	return "\n    " + string(bytes.Join(lines, []byte("\n    ")))
}

// waitReady returns when ready does so without an error, or with the log's tail as soon as the process
// has ended. A process that could not have its port gives errPortTaken.
func (p *Process) waitReady(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var why error
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // At the end of the time it would only say so once more.
			why = err
		}
		select {
		case <-tick.C:
		case <-p.done:
			cause := fmt.Errorf("%s ended with %s before it was ready; the end of %s:%s", p.name, p.cmd.ProcessState, p.logPath, p.logTail())
			if log, _ := p.Log(); strings.Contains(log, "address already in use") {
				return fmt.Errorf("%w: %w", errPortTaken, cause)
			}
			return cause
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %v; the end of %s:%s", p.name, context.Cause(ctx), why, p.logPath, p.logTail()) //nolint:errorlint // why may be nil
		}
	}
}

// httpOK is a readiness check: a GET of url answers 200.
func httpOK(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		status, body, err := get(ctx, client, url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET %s: %d %s", url, status, body)
		}
		return err
	}
}

func get(ctx context.Context, client *http.Client, url string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
