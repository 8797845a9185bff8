using System.CommandLine;
using System.Text;
using KvCluster.Cli;
using KvCluster.Cli.Commands;
using KvCluster.Processes;

namespace KvCluster.Tests.Cli;

/// <summary>Mistakes on the command line. Each gives exit code 2 and one line, before any call.</summary>
public sealed class ArgumentTests
{
    private const int Usage = 2;

    [ToolTheory("bash")]
    [InlineData(@"$KV put $'caf\xe9' v", "is not UTF-8")]
    [InlineData(@"$KV get $'caf\xe9'", "is not UTF-8")]
    [InlineData(@"$KV put key $'\xff'", "is not UTF-8")]
    [InlineData("$KV load f --give-up-after NaN", "--give-up-after must be from 0.1 to 86400 seconds")]
    [InlineData("$KV load f --give-up-after 0", "--give-up-after must be from 0.1 to 86400 seconds")]
    [InlineData("$KV load f --give-up-after -1", "--give-up-after must be from 0.1 to 86400 seconds")]
    [InlineData("$KV bench put --seconds 0", "--seconds must be from 0.1 to 86400 seconds")]
    [InlineData("$KV bench put --rate 0", "--rate must be from 1 to 10000000.")]
    [InlineData("$KV bench put --rate 1,000", "Cannot parse argument '1,000' for option '--rate' as a number in the allowed range.")]
    [InlineData("$KV bench g", "Argument 'g' not recognized. Must be one of: 'put' 'get' 'mixed' 'a' 'b' 'c' 'd' 'e' 'f'.")]
    [InlineData("$KV bench put --seconds NaN", "--seconds must be from 0.1 to 86400 seconds")]
    [InlineData("$KV scan --limit abc", "Cannot parse argument 'abc' for option '--limit' as a number in the allowed range.")]
    [InlineData("$KV status --shard -1", "as a number in the allowed range.")]
    [InlineData("$KV status --output xml", "Argument 'xml' not recognized. Must be one of: 'text' 'json' 'value'. See kv --help.")]
    [InlineData("$KV get k --tls-key k.pem", "--tls-key requires --tls-cert")]
    [InlineData("$KV get k --tls-ca absent.pem", "absent.pem is not usable: ")]
    [InlineData("KVCLUSTER_TLS_CA=absent.pem $KV get k", "absent.pem is not usable: ")]
    [InlineData(
        "$KV set remove s --al",
        "Unrecognized option '--al'. Write -- in front of arguments that begin so, or OPTION=VALUE for the value of an option. Did you mean --all? "
            + "See kv --help.")]
    [InlineData("$KV gte k", "Did you mean get? See kv --help.")]
    [InlineData("$KV set ad s m", "Did you mean add? See kv --help.")]
    [InlineData("$KV scan --limt 3", "Unrecognized option '--limt'.")]
    [InlineData("$KV scan --limt 3", "Did you mean --limit? See kv --help.")]
    [InlineData("$KV get k --timeout 0", "--timeout must be from 0.1 to 86400 seconds.")]
    [InlineData("$KV get k --timeout 1,5", "--timeout '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV get --key-hex 0f0", "--key-hex: '0f0' is not an even number of hexadecimal digits.")]
    [InlineData("$KV get --key-base64 a", "--key-base64: 'a' is not base64.")]
    [InlineData("$KV get --key-hex --key-base64 00", "--key-hex and --key-base64 exclude each other.")]
    [InlineData("$KV get a b --floor", "--floor is of one KEY.")]
    [InlineData("$KV get a b --out file", "--out is of one KEY.")]
    [InlineData("$KV delete a b --if-exists", "--if-exists is of one KEY.")]
    [InlineData("$KV scan --raw -o json", "--raw prints bytes as they are stored, so it cannot be used with --output json.")]
    [InlineData("$KV get k --endpoint h:1,", "--endpoint '' is not an address such as http://127.0.0.1:7400.")]
    [InlineData("$KV get k --endpoint me:secret@h:1", "--endpoint has a user or a password, for which the cluster has no use. Give http://h:1,")]
    [InlineData("$KV get k --endpoint http://me:secret,secret@h:1", "--endpoint is not an address such as http://127.0.0.1:7400.")]
    [InlineData("KVCLUSTER_ENDPOINT=ftp://h:1 $KV get k", "--endpoint 'ftp://h:1' is not an address such as http://127.0.0.1:7400.")]
    [InlineData("$KV set intersect s --json -- --t", "Unrecognized option '--json'.")]
    [InlineData("$KV admin transfer 0 --to 0", "--to 0: there is no node 0")]
    [InlineData("$KV put k --if-absnt", "Unrecognized option '--if-absnt'. Write -- in front of arguments that begin so, or OPTION=VALUE")]
    [InlineData("$KV put k --v", "Unrecognized option '--v'.")]
    [InlineData("$KV rm --prefix --al", "Unrecognized option '--al'.")]
    [InlineData("$KV put k v --ttl 1,5", "--ttl '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV touch k --ttl 1,000", "--ttl '1,000' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV session open k --lifetime 1,5", "--lifetime '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV session open k --lifetime 0.5", "--lifetime must be from 1 to 86400 seconds.")]
    [InlineData("$KV session end k 00", "SESSION '00' is not a session: 32 hexadecimal digits")]
    [InlineData("$KV session keep-alive k 0011223344556677", "SESSION '0011223344556677' is not a session: 32 hexadecimal digits")]
    [InlineData("$KV put k v --owner 00", "--owner '00' is not a session: 32 hexadecimal digits")]
    [InlineData("$KV put k @/", "@/ cannot be read: it is a directory")]
    [InlineData("$KV load /", "/ cannot be read: it is a directory")]
    [InlineData("$KV get k --tls-ca /", "/ is not usable: it is a directory")]
    [InlineData("$KV bench put --seconds 1,5", "--seconds '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV selftest --seconds 1,5", "--seconds '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV load f --give-up-after 1,5", "--give-up-after '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV admin placement --skip-if-silent --gateway", "--skip-if-silent and --gateway exclude each other.")]
    [InlineData("$KV admin coordinator recover --gateway", "coordinator recover does not go through a router: leave out --gateway")]
    [InlineData("$KV admin placement --wait 1,5", "--wait '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV admin replace-node 3 4 --wait 1,5", "--wait '1,5' is not a number of seconds, such as 1.5.")]
    [InlineData("$KV admin replace-node 3 --wait 90000", "--wait must be from 0 to 86400 seconds.")]
    [InlineData("$KV admin replace-node 3 four", "Cannot parse argument 'four'")]
    [InlineData("$KV put k v --ttl", "Required argument missing for option: '--ttl'.")]
    [InlineData("$KV put k v --ttl 5 --keep-ttl", "--keep-ttl and --ttl exclude each other.")]
    [InlineData("$KV put k v --owner 00112233445566778899aabbccddeeff --keep-owner", "--keep-owner and --owner exclude each other.")]
    [InlineData("$KV put k v --sequence --keep-ttl", "--sequence makes a new key, so there is nothing to keep.")]
    [InlineData("$KV get k --meta --raw", "--meta is printed instead of the value, so it cannot be used with --raw.")]
    [InlineData("$KV get k --endpoint http://h:1/path", "--endpoint must have nothing behind host and port: http://h:1.")]
    [InlineData("$KV get k --endpoint 'http://h:1?token=secret'", "--endpoint must have nothing behind host and port: http://h:1.")]
    [InlineData("$KV get k --endpoint http://me:secret@h:1", "--endpoint has a user or a password, for which the cluster has no use. Give http://h:1,")]
    [InlineData("$KV get k --endpoint ftp://me:secret@h:1", "--endpoint is not an address such as http://127.0.0.1:7400.")]
    [InlineData("KV_ENDPOINT=http://me:secret@h:1/ $KV status", "--endpoint has a user or a password")]
    [InlineData("$KV load f --crlf --raw", "--crlf and --raw exclude each other.")]
    [InlineData(@"printf '\nput k caf\xe9\n' | $KV txn", "line 2: it is not UTF-8")]
    [InlineData(@"printf '\nput k ""a\\nb""\n' | $KV txn", "line 2: a backslash in quotes is neither before a quote nor before another backslash")]
    [InlineData(@"printf '\nput k v 1,5\n' | $KV txn", "line 2: the lifetime '1,5' is not a number of seconds.")]
    [Trait("Turn", "7")]
    public async Task Kv_WithAWrongArgument_NamesItInOneLine(string script, string expected)
    {
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(script);
        Assert.Equal((Usage, ""), (exitCode, output));
        Assert.StartsWith("kv: ", error, StringComparison.Ordinal);
        Assert.Contains(expected, error, StringComparison.Ordinal);
        Assert.DoesNotContain("secret", error, StringComparison.Ordinal);
        Assert.Equal(error.Length - 1, error.IndexOf('\n', StringComparison.Ordinal));
    }

    [Theory]
    [InlineData("db1:7401", false, "http://db1:7401")]
    [InlineData("db1", false, "http://db1:7400")]
    [InlineData("db1", true, "https://db1:7400")]
    [InlineData("[::1]", false, "http://[::1]:7400")]
    [InlineData("[::1]:7401", true, "https://[::1]:7401")]
    [InlineData("http://db1:7401", true, "http://db1:7401")]
    public void WithScheme_OfAnAddress_AddsWhatIsMissing(string given, bool isTls, string meant) => Assert.Equal(meant, Connection.WithScheme(given, isTls));

    /// <summary>A misspelt option was taken for the value of a key, of a set's member, or of the option before it.</summary>
    [Fact]
    public void UnknownOption_OfEachCommand_IsFound_UnlessItIsMeant()
    {
        foreach (var path in CommandTable.Names.SelectMany(static name => PathsOf(Parsed(name).CommandResult.Command)))
        {
            Assert.Equal("--zz", UnknownIn([.. path, "--zz"]));
            Assert.Equal("--zz=1", UnknownIn([.. path, "a", "--zz=1"]));
            Assert.Null(UnknownIn([.. path, "--", "--zz"]));
            Assert.Null(UnknownIn([.. path, "-", "-5", "--output=json", "--endpoint", "http://h:1"]));
        }
        Assert.Null(UnknownIn("put", "k", "v", "--if-value=--x"));
        Assert.Equal("--x", UnknownIn("put", "k", "v", "--if-value", "--x"));

        static string? UnknownIn(params string[] arguments) => ParseMistakes.UnknownOption(Parsed(arguments), arguments);

        static ParseResult Parsed(params string[] arguments) => CommandRun.Parse(arguments);

        static IEnumerable<string[]> PathsOf(Command command) => command.Subcommands.Count == 0
            ? [[command.Name]]
            : command.Subcommands.SelectMany(PathsOf).Select(path => (string[])[command.Name, .. path]);
    }

    [ToolFact("bash")]
    public async Task Kv_WithAnUnknownCommand_DoesNotReportAMissingOne()
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync("$KV frob");
        Assert.Equal((Usage, "kv: Unrecognized command or argument 'frob'. See kv --help.\n"), (exitCode, error));
    }

    [ToolTheory("bash")]
    [InlineData("coordinator --data '' --listen http://127.0.0.1:0", "--data: names no directory")]
    [InlineData("run --node 1 --data '' --listen http://127.0.0.1:0 --coordinator etcd=http://127.0.0.1:9", "--data: names no directory")]
    [InlineData(@"init --nodes 1 --split-at $'caf\xe9' --coordinator etcd=http://127.0.0.1:9", "--split-at: a key is not UTF-8")]
    public async Task Node_WithAWrongArgument_NamesIt(string arguments, string expected)
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync($"$NODE {arguments}");
        Assert.Equal(Usage, exitCode);
        Assert.StartsWith("kv-node: ", error, StringComparison.Ordinal);
        Assert.Contains(expected, error, StringComparison.Ordinal);
    }

    [ToolFact("bash")]
    public async Task CertsInit_Twice_CreatesTheDirectoryOnlyOnce()
    {
        using var folder = new TemporaryDirectory();
        var script = $"$NODE certs init '{Path.Combine(folder.Path, "made")}' --nodes 1,2 --hosts node1,10.0.0.1";
        var (exitCode, output, error) = await KvProcess.RunInShellAsync(script);
        Assert.Equal((0, ""), (exitCode, error));
        Assert.Equal(
            output.Split('\n', StringSplitOptions.RemoveEmptyEntries).Order(),
            Directory.GetFiles(Path.Combine(folder.Path, "made"), "*", SearchOption.AllDirectories).Order());
        (exitCode, _, error) = await KvProcess.RunInShellAsync(script);
        const int unavailable = 3;
        Assert.Equal(unavailable, exitCode);
        Assert.Contains("ca.crt already exists; nothing was written", error, StringComparison.Ordinal);
        (exitCode, _, error) = await KvProcess.RunInShellAsync($"$NODE certs init '{folder.Path}' --nodes 1,1 ");
        Assert.Equal((Usage, "kv-node: --nodes: '1,1' names a node twice.\n"), (exitCode, error));
    }

    [ToolTheory("bash")]
    [InlineData("--authority a --certificate b=c", "kv-node: KUBERNETES_SERVICE_HOST is not set, so this is not a pod of Kubernetes; nothing was changed.")]
    [InlineData("--authority a --certificate b=c/d", "kv-node: --certificate: 'c/d' is neither a host name nor an address.")]
    [InlineData("--authority a --certificate b --label c", "kv-node: --label: 'c' is not a name and a value with '=' between them.")]
    [InlineData("--authority a", "kv-node: Option '--certificate' is required.")]
    public async Task CertsSecrets_WithAMistake_SaysWhich(string arguments, string message)
    {
        var (exitCode, _, error) = await KvProcess.RunInShellAsync($"env -u KUBERNETES_SERVICE_HOST $NODE certs secrets {arguments}");
        Assert.Equal(Usage, exitCode);
        Assert.StartsWith(message, error, StringComparison.Ordinal);
        Assert.Equal(error.Length - 1, error.IndexOf('\n', StringComparison.Ordinal));
    }

    /// <summary>A key may be any text, even one that has a meaning to other parsers.</summary>
    [ToolTheory("bash")]
    [InlineData("$KV get @there")]
    [InlineData(@"$KV get $'\xef\xbf\xbd'")]
    [Trait("Turn", "7")]
    public async Task Get_OfAnOddKey_ReachesTheCluster(string script)
    {
        const int unavailable = 3;
        var (exitCode, _, _) = await KvProcess.RunInShellAsync(script);
        Assert.Equal(unavailable, exitCode);
    }

    [Theory]
    [InlineData("kv\0get\0caf\u00e9\0", null)]
    [InlineData("kv\0get\0caf\ufffd\0", null)]
    [InlineData("dotnet\0kv.dll\0get\0caf\ufffd\0", null)]
    public void FirstWrong_OfUtf8Arguments_FindsNone(string commandLine, string? expected) =>
        Assert.Equal(expected, ArgumentBytes.FirstWrong(["get", commandLine.Split('\0')[^2]], Encoding.UTF8.GetBytes(commandLine)));

    [Fact]
    public void FirstWrong_OfABrokenArgument_FindsIt()
    {
        byte[] commandLine = [.. "dotnet\0kv.dll\0put\0"u8, .. "caf"u8, 0xE9, 0, .. "\ufffd"u8, 0];
        Assert.Equal("caf\ufffd", ArgumentBytes.FirstWrong(["put", "caf\ufffd", "\ufffd"], commandLine));
        Assert.Equal("caf\ufffd", ArgumentBytes.FirstWrong(["put", "caf\ufffd", ""], []));
    }
}
