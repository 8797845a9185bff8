using System.Runtime.InteropServices;

namespace KvCluster.Cli;

/// <summary>
/// Whether standard input, output and error were open when the program began. The runtime takes the numbers of closed ones for pipes of its
/// own: a read of such an input never ends, and a write to such an output reaches the runtime. What the program inherited lacks the mark
/// "close on exec", and what the runtime opens has it.
/// </summary>
/// <remarks>Elsewhere than on Unix they count as open.</remarks>
internal static class StandardHandles
{
    public const int Input = 0;
    public const int Output = 1;
    public const int Error = 2;

    private const int GetHandleFlags = 1;
    private const int CloseOnExec = 1;

    public static bool IsOpen(int handle) => OperatingSystem.IsWindows() || (Control(handle, GetHandleFlags) is >= 0 and var flags && (flags & CloseOnExec) == 0);

    [DllImport("libc", EntryPoint = "fcntl", SetLastError = true)]
    private static extern int Control(int handle, int command);
}
