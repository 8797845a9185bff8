using System.Runtime.InteropServices;

namespace KvCluster.Processes;

/// <summary>Signals from one process to another.</summary>
internal static class Signals
{
    private const int Terminate = 15;
    private const int Continue = 18;
    private const int Stop = 19;
    private const int NoSuchProcess = 3;

    /// <summary>Asks it to stop, as a service manager does.</summary>
    public static void End(int process) => Send(process, Terminate);

    /// <summary>The same for a process that may have ended already.</summary>
    public static void EndIfThere(int process)
    {
        if (SendSignal(process, Terminate) != 0 && Marshal.GetLastPInvokeError() != NoSuchProcess)
            throw Failure(process, Terminate);
    }

    /// <summary>Stops it; it notices nothing until <see cref="Resume"/>.</summary>
    public static void Pause(int process) => Send(process, Stop);

    public static void Resume(int process) => Send(process, Continue);

    private static void Send(int process, int signal)
    {
        if (SendSignal(process, signal) != 0)
            throw Failure(process, signal);
    }

    private static InvalidOperationException Failure(int process, int signal) =>
        new($"Signal {signal} to process {process}: error {Marshal.GetLastPInvokeError()}.");

    [DllImport("libc", EntryPoint = "kill", SetLastError = true)]
    private static extern int SendSignal(int process, int signal);
}
