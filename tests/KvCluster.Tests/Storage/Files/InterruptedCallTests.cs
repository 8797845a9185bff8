using System.Runtime.InteropServices;
using KvCluster.Storage.Files;

namespace KvCluster.Tests.Storage.Files;

/// <summary>
/// The real file system where signals interrupt its calls and the kernel transfers less than it was asked for. On a local disk both are so rare that nothing
/// else tests what goes on after them. Calls on a file are answered in the kernel's place; an open waits at a named pipe and gets real signals.
/// </summary>
[Collection(AloneCollection.Name)]
public sealed unsafe class InterruptedCallTests : IDisposable
{
    private const int InputOutput = 5;
    private const int FileTooLarge = 27;
    private const int Bytes = 100_000;
    private readonly TemporaryDirectory _directory = new();

    private string FilePath => Path.Combine(_directory.Path, "file");

    public void Dispose() => _directory.Dispose();

    [AnsweredCallsFact]
    public void Write_InterruptedAndCutShort_WritesEachByteOnce()
    {
        using var file = Create();
        var content = Content();
        var calls = RunOnFile(
            CallName.Write,
            [Interrupted, WriteOnly(1), WriteOnly(4_096), Interrupted, Interrupted, WriteOnly(50_001), Kernels],
            () => file.Write(content, 10));
        Assert.Equal(
            [(10, Bytes), (10, Bytes), (11, Bytes - 1), (4_107, Bytes - 4_097), (4_107, Bytes - 4_097), (4_107, Bytes - 4_097), (54_108, Bytes - 54_098)],
            Places(calls));
        Assert.Equal(Bytes + 10, file.Length);
        Assert.Equal([.. new byte[10], .. content], File.ReadAllBytes(FilePath));
    }

    [AnsweredCallsFact]
    public void Write_CutShortBeforeAnError_FailsWithItAndIsNotTriedAgain()
    {
        foreach (var (error, isFull) in new[] { (LibC.ErrorNoSpace, true), (LibC.ErrorQuota, true), (InputOutput, false), (FileTooLarge, false) })
        {
            using var file = Create();
            var content = Content();
            StorageIoException? failure = null;
            var calls = RunOnFile(
                CallName.Write,
                [WriteOnly(8_192), _ => CallAnswer.Failure(error)],
                () => failure = Assert.Throws<StorageIoException>(() => file.Write(content, 0)));
            Assert.Equal([(0, Bytes), (8_192, Bytes - 8_192)], Places(calls));
            Assert.Equal(isFull, failure!.IsDiskFull);
            Assert.Contains($"errno {error}", failure.Message, StringComparison.Ordinal);
            // What was not written does not count.
            Assert.Equal(0, file.Length);
        }
    }

    [AnsweredCallsFact]
    public void Write_OfWhichNothingIsTaken_FailsAndDoesNotRepeatItForever()
    {
        using var file = Create();
        var content = Content();
        StorageIoException? failure = null;
        var calls = RunOnFile(
            CallName.Write, [WriteOnly(4_096), _ => new CallAnswer(0)], () => failure = Assert.Throws<StorageIoException>(() => file.Write(content, 0)));
        Assert.Equal(2, calls.Count);
        Assert.Contains("offset 4096", failure!.Message, StringComparison.Ordinal);
    }

    [AnsweredCallsFact]
    public void Read_InterruptedAndCutShort_ReadsEachByteOnce()
    {
        using var file = Create();
        var content = Content();
        file.Write(content, 0);
        // More than there is: at the end the kernel says so.
        var read = new byte[Bytes + 100];
        var count = 0;
        var calls = RunOnFile(CallName.Read, [Interrupted, ReadOnly(7), Interrupted, ReadOnly(60_000), Kernels, Kernels], () => count = file.Read(read, 0));
        Assert.Equal([(0, Bytes + 100), (0, Bytes + 100), (7, Bytes + 93), (7, Bytes + 93), (60_007, 40_093), (Bytes, 100)], Places(calls));
        Assert.Equal(Bytes, count);
        Assert.Equal(content, read[..Bytes]);
    }

    [AnsweredCallsFact]
    public void Read_CutShortBeforeAnError_FailsAndIsNotTriedAgain()
    {
        using var file = Create();
        file.Write(Content(), 0);
        var read = new byte[Bytes];
        var calls = RunOnFile(
            CallName.Read, [ReadOnly(7), _ => CallAnswer.Failure(InputOutput)], () => Assert.Throws<StorageIoException>(() => file.Read(read, 0)));
        Assert.Equal(2, calls.Count);
    }

    [AnsweredCallsFact]
    public void Sync_Interrupted_IsRepeated()
    {
        using var file = Create();
        Assert.Equal(3, RunOnFile(CallName.DataSync, [Interrupted, Interrupted, Kernels], file.Sync).Count);
    }

    /// <summary>The kernel reports a failed sync once, and the next one succeeds although the data are lost.</summary>
    [AnsweredCallsFact]
    public void Sync_ThatFails_IsNeverRepeated()
    {
        using var file = Create();
        Assert.Single(RunOnFile(CallName.DataSync, [Failed, Kernels], () => Assert.Throws<StorageIoException>(file.Sync)));
        Assert.Equal(2, RunOnFile(CallName.DataSync, [Interrupted, Failed, Kernels], () => Assert.Throws<StorageIoException>(file.Sync)).Count);
    }

    [AnsweredCallsFact]
    public void SyncDirectory_Interrupted_IsRepeatedButNotAfterAFailure()
    {
        using (Create())
        {
        }
        CallFilter[] filter = [new(CallName.Sync)];
        Assert.Equal(
            3, AnsweredCalls.Run(filter, InTurn([Interrupted, Interrupted, Kernels]), () => LinuxFileSystem.Instance.SyncDirectory(_directory.Path)).Count);
        Assert.Single(AnsweredCalls.Run(
            filter, InTurn([Failed, Kernels]), () => Assert.Throws<StorageIoException>(() => LinuxFileSystem.Instance.SyncDirectory(_directory.Path))));
        Assert.DoesNotContain(Directory.EnumerateFileSystemEntries("/proc/self/fd"), entry => new FileInfo(entry).LinkTarget == _directory.Path);
    }

    [AnsweredCallsFact]
    public void Resize_Interrupted_IsRepeated()
    {
        using var file = Create();
        Assert.Equal(3, RunOnFile(CallName.Allocate, [Interrupted, Interrupted, Kernels], () => file.Resize(1 << 20)).Count);
        Assert.Equal((1 << 20, 1 << 20), (file.Length, new FileInfo(FilePath).Length));
        Assert.Equal(2, RunOnFile(CallName.Truncate, [Interrupted, Kernels], () => file.Resize(4_096)).Count);
        Assert.Equal((4_096, 4_096), (file.Length, new FileInfo(FilePath).Length));
        Assert.Equal(2, RunOnFile(CallName.Allocate, [Interrupted, Kernels], () => file.TryMakeHole(0, 4_096)).Count);
    }

    /// <summary>What a failed allocation has found is given back: on ext4 a full disk stayed full by it.</summary>
    [AnsweredCallsFact]
    public void Resize_FailedAfterAPart_LeavesTheFileAsItWas()
    {
        using var file = Create();
        file.Write(Content(), 0);
        StorageIoException? failure = null;
        RunOnFile(
            CallName.Allocate,
            [call => LibC.Allocate(call.File, 0, Bytes, 1 << 20) == 0 ? CallAnswer.Failure(LibC.ErrorNoSpace) : CallAnswer.Kernels],
            () => failure = Assert.Throws<StorageIoException>(() => file.Resize(4 << 20)));
        Assert.Equal((true, Bytes, Bytes), (failure!.IsDiskFull, file.Length, new FileInfo(FilePath).Length));
        Assert.InRange(file.AllocatedBytes, Bytes, 1 << 20);
        file.Resize(1 << 20);
        Assert.Equal(1 << 20, file.Length);
    }

    /// <summary>Where not even that is possible, the length is the one that the file has.</summary>
    [AnsweredCallsFact]
    public void Resize_FailedAfterAPartThatCannotBeGivenBack_KnowsTheLength()
    {
        using var file = Create();
        CallFilter[] filters = [OnFile(CallName.Allocate), OnFile(CallName.Truncate)];
        AnsweredCalls.Run(
            filters,
            InTurn([call => LibC.Allocate(call.File, 0, 0, 8_192) == 0 ? CallAnswer.Failure(LibC.ErrorNoSpace) : CallAnswer.Kernels,
                static _ => CallAnswer.Failure(LibC.ErrorNoSpace)]),
            () => Assert.True(Assert.Throws<StorageIoException>(() => file.Resize(1 << 20)).IsDiskFull));
        Assert.Equal((8_192, 8_192), (file.Length, new FileInfo(FilePath).Length));
        AnsweredCalls.Run(
            filters,
            InTurn([call => LibC.Truncate(call.File, 4_096) == 0 ? CallAnswer.Failure(LibC.ErrorNoSpace) : CallAnswer.Kernels]),
            () => Assert.True(Assert.Throws<StorageIoException>(() => file.Resize(4_096)).IsDiskFull));
        Assert.Equal(4_096, file.Length);
    }

    /// <summary>It only begins what the sync completes.</summary>
    [AnsweredCallsFact]
    public void BeginWriteOut_Interrupted_IsLeftToTheSync()
    {
        using var file = Create();
        file.Write(Content(), 0);
        Assert.Single(RunOnFile(CallName.SyncRange, [Interrupted, Kernels], () => file.BeginWriteOut(0, Bytes)));
        Assert.Single(RunOnFile(CallName.SyncRange, [Failed, Kernels], () => Assert.Throws<StorageIoException>(() => file.BeginWriteOut(0, Bytes))));
    }

    [AnsweredCallsFact]
    public void ReadIntoMap_Interrupted_IsRepeated()
    {
        using var file = Create();
        var content = Content();
        file.Write(content, 0);
        var map = file.Map(0, 1 << 20);
        CallFilter[] populates = [new(CallName.Advise, 2, LibC.AdvisePopulateRead)];
        Assert.Equal(3, AnsweredCalls.Run(
            populates, InTurn([Interrupted, _ => CallAnswer.Failure(LibC.ErrorAgain), Kernels]), () => file.ReadIntoMap(map, 0, Bytes)).Count);
        Assert.Equal(content, new ReadOnlySpan<byte>(map, Bytes).ToArray());
    }

    /// <summary>However often a signal comes, the disk has no error.</summary>
    [AnsweredCallsFact]
    public void ReadIntoMap_InterruptedAgainAndAgain_ReadsByCalls()
    {
        using var file = Create();
        file.Write(Content(), 0);
        var map = file.Map(0, 1 << 20);
        CallFilter[] filters = [new(CallName.Advise, 2, LibC.AdvisePopulateRead), OnFile(CallName.Read)];
        var reads = 0L;
        var calls = AnsweredCalls.Run(
            filters,
            call =>
            {
                if (call.Name == CallName.Advise)
                    return Interrupted(call);
                reads += call.Bytes;
                return CallAnswer.Kernels;
            },
            () => file.ReadIntoMap(map, 0, 65_536));
        Assert.InRange(calls.Count(call => call.Name == CallName.Advise), 2, 20);
        Assert.Equal(65_536, reads);
    }

    /// <summary>A populate does not say what the disk's error is; a read does.</summary>
    [AnsweredCallsFact]
    public void ReadIntoMap_ThatFails_ThrowsTheErrorOfTheDisk()
    {
        using var file = Create();
        file.Write(Content(), 0);
        var map = file.Map(0, 1 << 20);
        CallFilter[] filters = [new(CallName.Advise, 2, LibC.AdvisePopulateRead), OnFile(CallName.Read)];
        StorageIoException? failure = null;
        var calls = AnsweredCalls.Run(
            filters,
            InTurn([_ => CallAnswer.Failure(LibC.ErrorFault), Interrupted, ReadOnly(4_096), Failed]),
            () => failure = Assert.Throws<StorageIoException>(() => file.ReadIntoMap(map, 0, 32_768)));
        Assert.Contains($"errno {InputOutput}", failure!.Message, StringComparison.Ordinal);
        Assert.Equal([CallName.Advise, CallName.Read, CallName.Read, CallName.Read], calls.Select(call => call.Name));
        Assert.Equal(4_096, calls[^1].Offset);
    }

    /// <summary>The open of a named pipe waits for the other end, and a signal whose handler does not restart calls interrupts it.</summary>
    [Fact]
    public void Open_InterruptedBySignals_IsRepeated()
    {
        if (!OperatingSystem.IsLinux())
            return;
        var pipe = Path.Combine(_directory.Path, "pipe");
        Assert.Equal(0, MakePipe(pipe, 0x180)); // rw-------
        using var signals = new SignalledThread(LinuxFileSystem.OpenOrThrow, pipe);
        signals.SendUntilInterrupted();
        signals.SendWhileItOpens(times: 5);
        // Now the other end comes, and nothing interrupts.
        var other = LinuxFileSystem.OpenOrThrow(pipe, LibC.OpenReadWrite);
        Assert.True(signals.Opened() >= 0);
        Assert.Equal(0, LibC.Close(other));
    }

    private static CallAnswer Interrupted(SystemCall call) => CallAnswer.Failure(LibC.ErrorInterrupted);

    private static CallAnswer Failed(SystemCall call) => CallAnswer.Failure(InputOutput);

    private static CallAnswer Kernels(SystemCall call) => CallAnswer.Kernels;

    /// <summary>Writes some bytes of what was asked for.</summary>
    private static Func<SystemCall, CallAnswer> WriteOnly(int bytes) =>
        call => new CallAnswer(LibC.Write(call.File, (byte*)call.Second, (nuint)bytes, call.Offset));

    private static Func<SystemCall, CallAnswer> ReadOnly(int bytes) =>
        call => new CallAnswer(LibC.Read(call.File, (byte*)call.Second, (nuint)bytes, call.Offset));

    private static Func<SystemCall, CallAnswer> InTurn(Func<SystemCall, CallAnswer>[] answers)
    {
        var next = 0;
        return call => answers[next++](call);
    }

    private static IEnumerable<(long Offset, int Bytes)> Places(List<SystemCall> calls) => calls.Select(call => (call.Offset, call.Bytes));

    private static byte[] Content()
    {
        var content = new byte[Bytes];
        new Random(1).NextBytes(content);
        return content;
    }

    /// <summary>Answers the calls of one kind on the test's file in turn.</summary>
    private List<SystemCall> RunOnFile(CallName name, Func<SystemCall, CallAnswer>[] answers, Action code) =>
        AnsweredCalls.Run([OnFile(name)], InTurn(answers), code);

    private CallFilter OnFile(CallName name) => new(name, 0, (uint)AnsweredCalls.DescriptorOf(FilePath));

    /// <summary>A new file, instead of one from before.</summary>
    private IStorageFile Create()
    {
        File.Delete(FilePath);
        return LinuxFileSystem.Instance.Open(FilePath, new StorageFileOptions(StorageFileMode.CreateNew));
    }

    [DllImport("libc", EntryPoint = "mkfifo", SetLastError = true)]
    private static extern int MakePipe([MarshalAs(UnmanagedType.LPUTF8Str)] string path, uint mode);
}
