using System.Globalization;
using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>A thread that opens a named pipe, first by a bare call and then by the code to be tested, while it gets signals that interrupt it.</summary>
internal sealed class SignalledThread : IDisposable
{
    /// <summary>SIGUSR2, which the runtime does not use.</summary>
    private const int Signal = 12;

    private readonly Thread _thread;
    private readonly ManualResetEventSlim _hasStarted = new();
    private readonly nint _handlerBefore;
    private volatile bool _isInterrupted;
    private int _number;
    private int _bareError;
    private int _file = -1;
    private Exception? _failure;

    /// <summary>Starts it.</summary>
    /// <param name="open">Opens a file with flags, and returns its descriptor.</param>
    /// <param name="pipe">The pipe.</param>
    public SignalledThread(Func<string, int, int> open, string pipe)
    {
        // Any function that takes a number and does nothing to the process.
        _handlerBefore = SetHandler(Signal, NativeLibrary.GetExport(NativeLibrary.Load("libc", typeof(LibC).Assembly, null), "abs"));
        Assert.Equal(0, DoNotRestart(Signal, 1));
        _thread = new Thread(() =>
        {
            _number = int.Parse(Path.GetFileName(new FileInfo("/proc/thread-self").LinkTarget!), CultureInfo.InvariantCulture);
            _hasStarted.Set();
            if (LibC.Open(pipe, LibC.OpenReadOnly | LibC.OpenCloseOnExec, 0) < 0)
                _bareError = Marshal.GetLastPInvokeError();
            _isInterrupted = true;
            try
            {
                _file = open(pipe, LibC.OpenReadOnly | LibC.OpenCloseOnExec);
            }
            catch (StorageIoException failure)
            {
                // Reported by whoever asks for the result.
                _failure = failure;
            }
        })
        {
            // It waits forever if the test fails before the other end is open.
            IsBackground = true,
        };
        _thread.Start();
        _hasStarted.Wait();
    }

    /// <summary>Sends signals until one has interrupted the bare call: they do interrupt an open.</summary>
    public void SendUntilInterrupted()
    {
        while (!_isInterrupted)
        {
            Send();
            Thread.Yield();
        }
        Assert.Equal(LibC.ErrorInterrupted, _bareError);
    }

    /// <summary>Sends a signal each time the thread waits, until it has waited often enough.</summary>
    public void SendWhileItOpens(int times)
    {
        for (var waits = Waits(); times > 0; times--, waits = Waits())
        {
            // It waits once more after each signal.
            while (Waits() == waits)
            {
                Send();
                Thread.Yield();
            }
        }
    }

    /// <summary>The descriptor of the pipe, when the other end is open.</summary>
    public int Opened()
    {
        _thread.Join();
        Assert.Null(_failure);
        return _file;
    }

    public void Dispose()
    {
        SetHandler(Signal, _handlerBefore);
        if (_file >= 0)
            _ = LibC.Close(_file);
        _hasStarted.Dispose();
    }

    private void Send() => Assert.True(SendSignal(Environment.ProcessId, _number, Signal) == 0, $"The open has ended: {_failure?.Message}");

    private long Waits() => long.Parse(
        File.ReadLines($"/proc/self/task/{_number}/status").Single(line => line.StartsWith("voluntary_ctxt_switches:", StringComparison.Ordinal)).Split(
            '\t')[1], CultureInfo.InvariantCulture);

    [DllImport("libc", EntryPoint = "signal", SetLastError = true)]
    private static extern nint SetHandler(int signal, nint handler);

    [DllImport("libc", EntryPoint = "siginterrupt", SetLastError = true)]
    private static extern int DoNotRestart(int signal, int flag);

    [DllImport("libc", EntryPoint = "tgkill", SetLastError = true)]
    private static extern int SendSignal(int process, int thread, int signal);
}
