using System.Diagnostics;
using System.Globalization;
using System.Text.Json;

namespace KvCluster.Processes;

/// <summary>A real etcd of one or more members on loopback, each with its own directory. Killed when disposed. Members are numbered from 0.</summary>
internal sealed class EtcdProcesses : IAsyncDisposable
{
    /// <summary>The number of members for which there are ports: two for each, one for clients and one for peers.</summary>
    public const int CountMax = 5;

    private static readonly TimeSpan StartLimit = TimeSpan.FromMinutes(9);

    /// <summary>An argument of members that sync as etcd does by default: for measurements beside it.</summary>
    public const string WithSyncs = "--unsafe-no-fsync=false";

    // The system keeps what a killed process wrote, and no test cuts the power. On a slow disk etcd would otherwise spend seconds in every sync and
    // sometimes lose its leader.
    private const string WithoutSyncs = "--unsafe-no-fsync";

    // A question whether a member serves is repeated soon. A change is executed, however long it takes.
    private const string QuestionSeconds = "5s";
    private const string OrderSeconds = "120s";

    private readonly TemporaryDirectory _folder = new();
    private readonly int _port = FreePorts.Ten();
    private readonly Process?[] _processes;
    private readonly string _token = Guid.NewGuid().ToString("N");
    private readonly IReadOnlyList<string> _arguments;

    private EtcdProcesses(int count, bool secure, IReadOnlyList<string> arguments)
    {
        _processes = new Process?[count];
        _arguments = arguments;
        if (secure)
            Certificates = new EtcdCertificates(Path.Combine(_folder.Path, "certificates"));
    }

    /// <summary>Whether its programs are on this machine.</summary>
    public static bool AreAvailable => Tools.Find("etcd") is not null && Tools.Find("etcdctl") is not null;

    /// <summary>Null if members use clear text.</summary>
    public EtcdCertificates? Certificates { get; }

    public int Count => _processes.Length;

    /// <summary>The addresses of the members for clients.</summary>
    public IReadOnlyList<string> Endpoints => [.. Enumerable.Range(0, Count).Select(ClientAddress)];

    /// <summary>The process ids of the running members.</summary>
    public IReadOnlyList<int> ProcessIds => [.. _processes.OfType<Process>().Select(process => process.Id)];

    /// <summary>Starts all members and waits until they have a leader.</summary>
    /// <param name="secure">Uses TLS and accepts only clients with a certificate of the authority.</param>
    /// <param name="arguments">Further arguments for every member.</param>
    public static async Task<EtcdProcesses> StartAsync(int count = 1, bool secure = false, params string[] arguments)
    {
        var members = new EtcdProcesses(count, secure, arguments);
        try
        {
            for (var member = 0; member < count; member++)
                members.Start(member);
            await members.UntilAsync(members.IsServingAsync);
            return members;
        }
        catch
        {
            await members.DisposeAsync();
            throw;
        }
    }

    public int ProcessOf(int member) => _processes[member]!.Id;

    public string DataOf(int member) => Path.Combine(_folder.Path, $"m{member}");

    /// <summary>Starts a member, or restarts it with its data.</summary>
    public void Start(int member)
    {
        string[] arguments =
        [
            "--name",
            $"m{member}", WithoutSyncs, "--data-dir", DataOf(member), "--log-level", "error", "--log-outputs", Path.Combine(_folder.Path, $"m{member}.log"),
            "--listen-client-urls", ClientAddress(member), "--advertise-client-urls", ClientAddress(member),
            "--listen-peer-urls",
            PeerAddress(member), "--initial-advertise-peer-urls", PeerAddress(member), "--initial-cluster", Peers, "--initial-cluster-token", _token,
        ];
        string[] security = Certificates is null
            ? []
            : ["--cert-file",
                Certificates.ServerFile, "--key-file", Certificates.ServerKeyFile, "--trusted-ca-file", Certificates.AuthorityFile, "--client-cert-auth"];
        var process = Process.Start(new ProcessStartInfo(Tools.Find("etcd")!, [.. arguments, .. security, .. _arguments]) { RedirectStandardError = true })!;
        // Nobody reads its output when it is killed.
        process.ErrorDataReceived += static (_, _) => { };
        process.BeginErrorReadLine();
        _processes[member] = process;
    }

    /// <summary>Kills a member as a crash does.</summary>
    public async Task KillAsync(int member)
    {
        using var process = _processes[member]!;
        _processes[member] = null;
        process.Kill();
        await process.WaitForExitAsync();
    }

    /// <summary>Stops all running members, runs an action on their directories, and restarts them.</summary>
    public async Task RestartAsync(Action meanwhile)
    {
        for (var member = 0; member < Count; member++)
            if (_processes[member] is not null)
                await KillAsync(member);
        meanwhile();
        for (var member = 0; member < Count; member++)
            Start(member);
        await UntilAsync(IsServingAsync);
    }

    /// <summary>
    /// Stops all members, restores a snapshot in the place of their data, as an operator does, and restarts them. Needs etcdutl: since etcd 3.6 etcdctl cannot
    /// restore.
    /// </summary>
    /// <param name="snapshot">The file.</param>
    /// <param name="isRevisionRaised">Continues above all revisions that were ever assigned.</param>
    public Task RestoreAsync(string snapshot, bool isRevisionRaised) => RestartAsync(() =>
    {
        string[] raised = isRevisionRaised ? ["--bump-revision", "1000000", "--mark-compacted"] : [];
        for (var member = 0; member < Count; member++)
        {
            Directory.Delete(DataOf(member), recursive: true);
            string[] arguments =
            [
                "snapshot",
                "restore", snapshot, "--data-dir", DataOf(member), "--name", $"m{member}", "--initial-cluster", Peers, "--initial-cluster-token", _token,
                "--initial-advertise-peer-urls", PeerAddress(member), .. raised,
            ];
            using var process = Process.Start(new ProcessStartInfo(Tools.Find("etcdutl")!, arguments) { RedirectStandardError = true })!;
            var error = process.StandardError.ReadToEnd();
            process.WaitForExit();
            if (process.ExitCode != 0)
                throw new InvalidOperationException($"etcdutl {string.Join(' ', arguments)}: {error}");
        }
    });

    /// <summary>Copies a stopped member's data, as a backup of its directory does, or restores it.</summary>
    public static void CopyFolder(string source, string target)
    {
        foreach (var file in Directory.EnumerateFiles(source, "*", SearchOption.AllDirectories))
        {
            var copy = Path.Combine(target, Path.GetRelativePath(source, file));
            Directory.CreateDirectory(Path.GetDirectoryName(copy)!);
            File.Copy(file, copy, overwrite: true);
        }
    }

    /// <summary>The member that leads. Waits until there is one.</summary>
    public async Task<int> LeaderAsync()
    {
        var leader = -1;
        await UntilAsync(async () =>
        {
            for (var member = 0; member < Count && leader < 0; member++)
                if (_processes[member] is not null && await LeadsAsync(member))
                    leader = member;
            return leader >= 0;
        });
        return leader;
    }

    /// <summary>Runs etcdctl against all members and returns its output, trimmed.</summary>
    public async Task<string> ControlAsync(params string[] arguments)
    {
        var answer = (ExitCode: 1, Output: "", Error: "");
        // Without a leader, or after a timeout, etcd refuses a request. A question may be repeated, but a change may have been executed.
        var isQuestion = arguments[0] == "get";
        await UntilAsync(async () => (answer = await RunControlAsync(Endpoints, OrderSeconds, arguments)).ExitCode == 0 || !isQuestion);
        return answer.ExitCode == 0 ? answer.Output : throw new InvalidOperationException($"etcdctl {string.Join(' ', arguments)}: {answer.Error}");
    }

    public async ValueTask DisposeAsync()
    {
        for (var member = 0; member < Count; member++)
            if (_processes[member] is not null)
                await KillAsync(member);
        _folder.Dispose();
    }

    private async Task<bool> LeadsAsync(int member)
    {
        var (exitCode, output, _) = await RunControlAsync([ClientAddress(member)], QuestionSeconds, "endpoint", "status", "-w", "json");
        if (exitCode != 0)
            return false;
        using var document = JsonDocument.Parse(output);
        var status = document.RootElement[0].GetProperty("Status");
        return status.GetProperty("leader").GetUInt64() == status.GetProperty("header").GetProperty("member_id").GetUInt64();
    }

    // A member refuses calls without a user, too, once it has a leader.
    private async Task<bool> IsServingAsync()
    {
        for (var member = 0; member < Count; member++)
        {
            var (exitCode, _, error) = await RunControlAsync([ClientAddress(member)], QuestionSeconds, "get", "a key that nobody has");
            if (exitCode != 0 && !error.Contains("user name is empty", StringComparison.Ordinal))
                return false;
        }
        return true;
    }

    private Task<(int ExitCode, string Output, string Error)> RunControlAsync(IReadOnlyList<string> endpoints, string time, params string[] arguments)
    {
        string[] security = Certificates is null
            ? []
            : ["--cacert", Certificates.AuthorityFile, "--cert", Certificates.ClientFile, "--key", Certificates.ClientKeyFile];
        return Tools.RunAsync(
            Tools.Find("etcdctl")!, ["--endpoints", string.Join(',', endpoints), "--dial-timeout", time, "--command-timeout", time, .. security, .. arguments]);
    }

    private async Task UntilAsync(Func<Task<bool>> condition)
    {
        var started = Stopwatch.GetTimestamp();
        while (!await condition())
        {
            if (Stopwatch.GetElapsedTime(started) > StartLimit)
                throw new TimeoutException($"etcd does not serve after {StartLimit.TotalSeconds.ToString(CultureInfo.InvariantCulture)} s.");
            await Task.Delay(50);
        }
    }

    private string Peers => string.Join(',', Enumerable.Range(0, Count).Select(index => $"m{index}={PeerAddress(index)}"));

    private string ClientAddress(int member) =>
        $"{(Certificates is null ? "http" : "https")}://127.0.0.1:{(_port + member).ToString(CultureInfo.InvariantCulture)}";

    private string PeerAddress(int member) => $"http://127.0.0.1:{(_port + CountMax + member).ToString(CultureInfo.InvariantCulture)}";
}
