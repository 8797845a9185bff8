using System.Runtime.ExceptionServices;
using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>
/// Runs code on a thread of its own, some of whose system calls the test answers in the kernel's place: with an error as after a signal, with fewer bytes, or
/// not at all, so that the kernel executes them. That is a filter of the kernel (seccomp with a listener, since Linux 5.5), so the code that is tested is
/// unchanged. A filter stays with its thread, and ends with it.
/// </summary>
internal static unsafe class AnsweredCalls
{
    private const int NoNewPrivileges = 38;
    private const int SetFilter = 1;
    private const int WithListener = 8;
    private const uint Notify = 0x7fc00000;
    private const uint Allow = 0x7fff0000;
    private const nuint Receive = 0xC0502100;
    private const nuint Send = 0xC0182101;

    /// <summary>LibC's error for a call that a signal has interrupted.</summary>
    private const int Interrupted = 4;

    /// <summary>The number of each call: on x64, on Arm64.</summary>
    private static readonly Dictionary<CallName, (int X64, int Arm64)> Numbers = new()
    {
        [CallName.Read] = (17, 67),
        [CallName.Write] = (18, 68),
        [CallName.Sync] = (74, 82),
        [CallName.DataSync] = (75, 83),
        [CallName.SyncRange] = (277, 84),
        [CallName.Allocate] = (285, 47),
        [CallName.Truncate] = (77, 46),
        [CallName.Advise] = (28, 233),
        [CallName.Lock] = (73, 32),
    };

    private static bool IsArm => RuntimeInformation.ProcessArchitecture == Architecture.Arm64;

    private static int SetFilterNumber => IsArm ? 277 : 317;

    /// <summary>Why calls cannot be answered here; null if they can.</summary>
    public static string? Obstacle()
    {
        if (!OperatingSystem.IsLinux() || RuntimeInformation.ProcessArchitecture is not (Architecture.X64 or Architecture.Arm64))
            return "needs Linux on x64 or Arm64";
        try
        {
            Run([], _ => CallAnswer.Kernels, () => { });
            return null;
        }
        catch (InvalidOperationException failure)
        {
            return failure.Message;
        }
    }

    /// <summary>The number by which this process has a file open.</summary>
    public static int DescriptorOf(string path) =>
        int.Parse(
            Path.GetFileName(Directory.EnumerateFileSystemEntries("/proc/self/fd").Single(entry => new FileInfo(entry).LinkTarget == path)),
            System.Globalization.CultureInfo.InvariantCulture);

    /// <summary>Runs code, and throws what it throws. Returns the calls that were answered, in their order.</summary>
    /// <param name="filters">The calls.</param>
    /// <param name="answer">Answers one, on the caller's thread. It may do what the call would do, in part.</param>
    /// <param name="code">The code.</param>
    /// <exception cref="InvalidOperationException">The kernel does not allow it.</exception>
    public static List<SystemCall> Run(CallFilter[] filters, Func<SystemCall, CallAnswer> answer, Action code)
    {
        using var hasListener = new ManualResetEventSlim();
        var (listener, error) = (-1, 0);
        ExceptionDispatchInfo? failure = null;
        // The last call of the thread, with a descriptor that nothing has, says that it has ended.
        var end = new CallFilter(CallName.Sync, 0, uint.MaxValue);
        var thread = new Thread(() =>
        {
            listener = Install([end, .. filters], out error);
            hasListener.Set();
            if (listener < 0)
                return;
            try
            {
                code();
            }
            catch (Exception exception)
            {
                // Rethrown by the caller.
                failure = ExceptionDispatchInfo.Capture(exception);
            }
            _ = LibC.Sync(-1);
        });
        thread.Start();
        hasListener.Wait();
        if (listener < 0)
        {
            thread.Join();
            throw new InvalidOperationException(
                $"The kernel refuses a filter of system calls with a listener: {Marshal.GetPInvokeErrorMessage(error)} (errno {error}).");
        }
        var calls = Answer(listener, answer, ref failure);
        thread.Join();
        _ = LibC.Close(listener);
        failure?.Throw();
        return calls;
    }

    private static List<SystemCall> Answer(int listener, Func<SystemCall, CallAnswer> answer, ref ExceptionDispatchInfo? failure)
    {
        var calls = new List<SystemCall>();
        while (true)
        {
            var notice = default(Notice);
            if (LibC.Control(listener, Receive, (nint)(&notice)) != 0)
            {
                Invariant.Check(Marshal.GetLastPInvokeError() == Interrupted, $"No call can be received: errno {Marshal.GetLastPInvokeError()}.");
                continue;
            }
            var call = new SystemCall(NameOf(notice.Number), notice.First, notice.Second, notice.Third, notice.Fourth);
            var hasEnded = call is { Name: CallName.Sync, File: -1 };
            var given = CallAnswer.Kernels;
            if (!hasEnded)
            {
                calls.Add(call);
                try
                {
                    given = answer(call);
                }
                catch (Exception exception)
                {
                    // The thread waits for an answer, and gets the kernel's. The caller gets the exception.
                    failure ??= ExceptionDispatchInfo.Capture(exception);
                }
            }
            var reply = new Reply { Id = notice.Id, Value = given.Error == 0 ? given.Value : 0, Error = -given.Error, Flags = given.IsKernels ? 1u : 0 };
            Invariant.Check(LibC.Control(listener, Send, (nint)(&reply)) == 0, $"{call} cannot be answered: errno {Marshal.GetLastPInvokeError()}.");
            if (hasEnded)
                return calls;
        }
    }

    private static CallName NameOf(int number) => Numbers.Single(one => NumberOf(one.Key) == number).Key;

    private static int NumberOf(CallName name) => IsArm ? Numbers[name].Arm64 : Numbers[name].X64;

    /// <summary>Makes the kernel pass the calls of this thread to a listener, whose descriptor is returned.</summary>
    private static int Install(CallFilter[] filters, out int error)
    {
        var program = new List<Instruction>();
        foreach (var filter in filters)
        {
            var hasArgument = filter.Argument >= 0;
            program.Add(Load(0));
            program.Add(SkipUnless((uint)NumberOf(filter.Name), (byte)(hasArgument ? 3 : 1)));
            if (hasArgument)
            {
                // The kernel's description of a call has the arguments from byte 16 on, 8 bytes each.
                program.Add(Load((uint)(16 + (8 * filter.Argument))));
                program.Add(SkipUnless(filter.Value, 1));
            }
            program.Add(Return(Notify));
        }
        program.Add(Return(Allow));
        error = 0;
        fixed (Instruction* first = program.ToArray())
        {
            var whole = new Filter { Count = (ushort)program.Count, First = first };
            var listener = Configure(NoNewPrivileges, 1, 0, 0, 0) == 0 ? (int)Call(SetFilterNumber, SetFilter, WithListener, (nint)(&whole)) : -1;
            if (listener < 0)
                error = Marshal.GetLastPInvokeError();
            return listener;
        }
    }

    private static Instruction Load(uint offset) => new() { Code = 0x20, Constant = offset };

    private static Instruction SkipUnless(uint value, byte instructions) => new() { Code = 0x15, IfNot = instructions, Constant = value };

    private static Instruction Return(uint action) => new() { Code = 0x06, Constant = action };

    [DllImport("libc", EntryPoint = "prctl", SetLastError = true)]
    private static extern int Configure(int option, nint second, nint third, nint fourth, nint fifth);

    [DllImport("libc", EntryPoint = "syscall", SetLastError = true)]
    private static extern nint Call(nint number, nint first, nint second, nint third);

    /// <summary>sock_filter: an instruction of a filter.</summary>
    private struct Instruction
    {
        public ushort Code;
        public byte IfSo;
        public byte IfNot;
        public uint Constant;
    }

    /// <summary>sock_fprog.</summary>
    private struct Filter
    {
        public ushort Count;
        public Instruction* First;
    }

    /// <summary>seccomp_notif.</summary>
    [StructLayout(LayoutKind.Sequential, Size = 80)]
    private struct Notice
    {
        public ulong Id;
        public uint Process;
        public uint Flags;
        public int Number;
        public uint Architecture;
        public ulong Instruction;
        public ulong First;
        public ulong Second;
        public ulong Third;
        public ulong Fourth;
    }

    /// <summary>seccomp_notif_resp.</summary>
    private struct Reply
    {
        public ulong Id;
        public long Value;
        public int Error;
        public uint Flags;
    }
}
