using System.Globalization;
using System.Text;
using System.Text.Json;
using KvCluster.Client;
using KvCluster.Processes;
using KvCluster.Tests.Node;

namespace KvCluster.Tests.Cli;

/// <summary>Commands of `kv` as a shell runs them, with a cluster of one node.</summary>
public sealed class CommandTests(KvApiTests.OneNode fixture) : IClassFixture<KvApiTests.OneNode>
{
    private const int ReaderGone = 141;

    private readonly string _key = $"{Guid.NewGuid():N}";
    private readonly KvClient _client = new(new KvClientOptions { Endpoints = [fixture.Cluster.AddressOf(1)], Timeout = Eventually.Limit });

    /// <summary>The number 9007199254740993 came out as ...992 in every program that reads JSON as JavaScript does.</summary>
    [ToolFact("bash")]
    public async Task Increment_InJson_PrintsTheNumberAsText()
    {
        var (exitCode, output, _) = await RunAsync($"$KV incr {_key} 9007199254740993 --output json");
        Assert.Equal((0, "9007199254740993"), (exitCode, JsonDocument.Parse(output).RootElement.GetProperty("number").GetString()));
        (_, output, _) = await RunAsync($"printf '\\nincr {_key} 2\\n' | $KV txn --output json");
        Assert.Equal("9007199254740995", JsonDocument.Parse(output).RootElement.GetProperty("results")[0].GetProperty("number").GetString());
    }

    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Put_ThatKeeps_LeavesTheLife_WhichGetTells()
    {
        var (_, opened, _) = await RunAsync($"$KV session open {_key} --lifetime 3600 --output json");
        var session = JsonDocument.Parse(opened).RootElement;
        await RunAsync($"$KV put {_key} one --ttl 1000.5 --owner {session.GetProperty("session").GetString()}");
        var owner = session.GetProperty("etag").GetString();
        await AssertLifeAsync(hasTtl: true, owner);
        await RunAsync($"$KV put {_key} two --keep-ttl --keep-owner");
        await AssertLifeAsync(hasTtl: true, owner);
        await RunAsync($"$KV put {_key} three --keep-ttl");
        await AssertLifeAsync(hasTtl: true, owner: null);
        await RunAsync($"$KV put {_key} four");
        await AssertLifeAsync(hasTtl: false, owner: null);

        async Task AssertLifeAsync(bool hasTtl, string? owner)
        {
            var (_, lines, _) = await RunAsync($"$KV get {_key} --meta");
            var facts = lines.Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(static line => line.Split('\t'))
                .ToDictionary(static fact => fact[0], static fact => fact[1]);
            Assert.Equal(["key", "etag", "bytes", "ttl", "owner"], facts.Keys);
            Assert.Equal(owner ?? "none", facts["owner"]);
            if (hasTtl)
                Assert.InRange(double.Parse(facts["ttl"], CultureInfo.InvariantCulture), 1, 1000.5);
            else
                Assert.Equal("none", facts["ttl"]);
            foreach (var command in (string[])["get", "scan"])
            {
                var (_, json, _) = await RunAsync($"$KV {command} {_key} --output json");
                var entry = JsonDocument.Parse(json).RootElement;
                Assert.Equal((hasTtl, owner), (entry.TryGetProperty("ttl_ms", out _), entry.TryGetProperty("owner", out var told) ? told.GetString() : null));
            }
        }
    }

    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task SeveralKeys_AreReadAndRemovedTogether_AndWhatIsMissingIsTold()
    {
        await _client.PutAsync(_key + "/a", "1");
        await _client.PutAsync(_key + "/b", "two\tlines\n");
        var missing = $"kv: '{_key}/c' does not exist.\n";
        Assert.Equal((1, $"{_key}/a\t1\n{_key}/b\t$'two\\tlines\\n'\n", missing), await RunAsync($"$KV get {_key}/a {_key}/c {_key}/b"));
        Assert.Equal((1, "1two\tlines\n", missing), await RunAsync($"$KV get {_key}/a {_key}/b {_key}/c --raw"));
        Assert.Equal((0, "1\n$'two\\tlines\\n'\n", ""), await RunAsync($"$KV get {_key}/a {_key}/b -o value"));
        var (exitCode, output, _) = await RunAsync($"$KV get {_key}/a {_key}/c -o json");
        var found = output.Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(static line => JsonDocument.Parse(line).RootElement.GetProperty("found"));
        Assert.Equal((1, true, false), (exitCode, found.First().GetBoolean(), found.Last().GetBoolean()));
        (exitCode, output, var error) = await RunAsync($"$KV del {_key}/a {_key}/c -o json");
        Assert.Equal((0, ""), (exitCode, error));
        Assert.Equal([(_key + "/a", true), (_key + "/c", false)], output.Split('\n', StringSplitOptions.RemoveEmptyEntries)
            .Select(static line => JsonDocument.Parse(line).RootElement)
            .Select(static line => (line.GetProperty("key").GetString(), line.GetProperty("existed").GetBoolean())));
    }

    /// <summary>A key that is not UTF-8 could be loaded and scanned, but not read.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Keys_InHexadecimalOrBase64_AreTheirBytes()
    {
        byte[] key = [.. Encoding.UTF8.GetBytes(_key), 0xFF, 0];
        var (hex, base64) = (Convert.ToHexString(key), Convert.ToBase64String(key));
        var (exitCode, _, error) = await RunAsync($"$KV put --key-hex {hex} v");
        Assert.Equal((0, ""), (exitCode, error));
        Assert.Equal((0, "v\n", ""), await RunAsync($"$KV get --key-base64 {base64}"));
        Assert.Equal((0, "v\n", ""), await RunAsync($"$KV ls --key-hex {hex[..^2]} -o value"));
        Assert.Equal((0, "1\n", ""), await RunAsync($"$KV count --key-hex {hex}"));
        Assert.Equal((0, "1\n", ""), await RunAsync($"$KV rm --key-hex {hex}"));
        Assert.False((await _client.GetAsync(key)).Found);
    }

    /// <summary>A value with a line feed looked like an entry of its own.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Scan_OfWhatALineCannotCarry_QuotesIt_UnlessItIsAskedForRaw()
    {
        await _client.PutAsync(_key + "/\t", "a\nb");
        await _client.PutAsync(_key + "/x", "{\"plain\": \"value\"}");
        Assert.Equal((0, $"$'{_key}/\\t'\t$'a\\nb'\n{_key}/x\t{{\"plain\": \"value\"}}\n", ""), await RunAsync($"$KV scan {_key}"));
        Assert.Equal((0, $"{_key}/\t\ta\nb\n", ""), await RunAsync($"$KV scan {_key} --raw --limit 1"));
        Assert.Equal((0, "$'a\\nb'\n{\"plain\": \"value\"}\n", ""), await RunAsync($"$KV scan {_key} -o value"));
    }

    [ToolTheory("bash")]
    [InlineData("text")]
    [InlineData("json")]
    [Trait("Turn", "3")]
    public async Task Export_ThatIsImported_GivesBackEveryByteAndTheTimeLeft(string form)
    {
        using var folder = new TemporaryDirectory();
        var prefix = Encoding.UTF8.GetBytes(_key + "/");
        byte[] odd = [.. prefix, 0xFF, (byte)'\t', 0];
        byte[] value = [.. "a\r\n'\\\t"u8, 0, 0xE9];
        await _client.PutAsync(odd, value);
        await _client.PutAsync(_key + "/quote", "$'plain'");
        await _client.PutAsync((byte[])[.. prefix, .. "timed"u8], value, new KvPutOptions { TimeToLive = TimeSpan.FromSeconds(1000) });
        await RunAsync($"$KV put {_key}/owned v --owner $($KV session open {_key} --lifetime 3600)");
        var (exitCode, output, error) = await RunAsync(
            $"cd '{folder.Path}'; $KV export {_key}/ -o {form} > exported && $KV rm --prefix {_key}/ && $KV import exported && $KV verify exported");
        Assert.True(exitCode == 0, error);
        Assert.StartsWith("kv: keys left out because sessions own them: 1. ", error, StringComparison.Ordinal);
        Assert.Contains("3 records in ", output, StringComparison.Ordinal);
        Assert.Contains("0 missing, 0 different", output, StringComparison.Ordinal);
        Assert.Equal(3, await _client.CountAsync(prefix));
        var options = new KvGetOptions { WithLife = true };
        var (plain, timed) = (await _client.GetAsync(odd, options), await _client.GetAsync((byte[])[.. prefix, .. "timed"u8], options));
        Assert.Null(plain.Life.Left);
        Assert.Equal(value, plain.Value.ToArray());
        Assert.Equal(value, timed.Value.ToArray());
        Assert.InRange(Assert.NotNull(timed.Life.Left).TotalSeconds, 1, 1000);
    }

    /// <summary>It was imported without its owner, so that nothing ended it any more.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Import_OfAScan_LeavesOutWhatSessionsOwn_UnlessItIsAskedFor()
    {
        using var folder = new TemporaryDirectory();
        await _client.PutAsync(_key + "/a", "1");
        await RunAsync($"$KV put {_key}/b 2 --owner $($KV session open {_key} --lifetime 3600)");
        await _client.PutAsync(_key + "/c", "3");
        var (exitCode, output, error) = await RunAsync(
            $"cd '{folder.Path}'; $KV scan {_key}/ -o json > scanned; $KV export {_key}/ --owned -o json > exported; $KV rm --prefix {_key}/ > removed; "
            + "$KV import scanned -o json");
        Assert.Equal((0, "kv: keys left out because sessions owned them: 1. With --owned they are imported, too.\n"), (exitCode, error));
        var report = JsonDocument.Parse(output).RootElement;
        Assert.Equal(
            (2, 1, 3),
            (report.GetProperty("records").GetInt32(), report.GetProperty("left_out").GetInt32(), report.GetProperty("acknowledged_line").GetInt32()));
        Assert.Equal((0, "2\n", ""), await RunAsync($"$KV count {_key}/"));
        foreach (var import in (string[])["import scanned --owned", "import exported"])
        {
            (exitCode, _, error) = await RunAsync($"cd '{folder.Path}'; $KV rm --prefix {_key}/ > removed; $KV {import}");
            Assert.Equal((0, ""), (exitCode, error));
            Assert.Equal((0, "3\n", ""), await RunAsync($"$KV count {_key}/"));
        }
    }

    /// <summary>What had not been imported because sessions had owned it was reported as missing.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Verify_OfAScan_LeavesOutWhatSessionsOwned_UnlessItIsAskedFor()
    {
        using var folder = new TemporaryDirectory();
        await _client.PutAsync(_key + "/a", "1");
        await RunAsync($"$KV put {_key}/b 2 --owner $($KV session open {_key} --lifetime 3600)");
        var (exitCode, output, error) = await RunAsync(
            $"cd '{folder.Path}'; $KV scan {_key}/ -o json > scanned; $KV delete {_key}/b > deleted 2>&1; $KV verify scanned -o json");
        Assert.Equal((0, "kv: keys left out because sessions owned them: 1. With --owned they are compared, too.\n"), (exitCode, error));
        var report = JsonDocument.Parse(output).RootElement;
        Assert.Equal((1, 1), (report.GetProperty("records").GetInt32(), report.GetProperty("left_out").GetInt32()));
        (exitCode, output, error) = await RunAsync($"cd '{folder.Path}'; $KV verify scanned --owned");
        Assert.Equal((6, $"kv: line 2: '{_key}/b' is missing\n"), (exitCode, error));
        Assert.Contains("2 records in ", output, StringComparison.Ordinal);
        Assert.Contains("1 missing, 0 different", output, StringComparison.Ordinal);
    }

    /// <summary>Keys that expire are written beside the others, and must not overtake what stands before them.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Import_OfAKeyThatIsThereAgain_KeepsTheLaterLine_AndReportsTheLast()
    {
        const int lines = 600;
        using var folder = new TemporaryDirectory();
        var random = new Random(5);
        var (text, last) = (new StringBuilder("#kvcluster-export-1\n"), new Dictionary<string, (string Value, bool IsTimed)>());
        for (var line = 0; line < lines; line++)
        {
            var (key, isTimed) = ($"{_key}/{random.Next(100)}", random.Next(8) == 0);
            text.Append(CultureInfo.InvariantCulture, $"{key}\t{line}\t{(isTimed ? "3600000" : "")}\n");
            last[key] = ($"{line}", isTimed);
        }
        await File.WriteAllTextAsync(Path.Combine(folder.Path, "file"), text.ToString());
        var (exitCode, output, error) = await RunAsync($"$KV import '{folder.Path}/file' -o json");
        Assert.True(exitCode == 0, error);
        var report = JsonDocument.Parse(output).RootElement;
        Assert.Equal((lines, lines + 1), (report.GetProperty("records").GetInt32(), report.GetProperty("acknowledged_line").GetInt32()));
        await foreach (var entry in _client.ScanAsync(new KvScan { Prefix = Encoding.UTF8.GetBytes(_key + "/"), WithLife = true }))
        {
            Assert.True(last.Remove(Encoding.UTF8.GetString(entry.Key.Span), out var expected));
            Assert.Equal(expected, (Encoding.UTF8.GetString(entry.Value.Span), entry.Life.Left is not null));
        }
        Assert.Empty(last);
    }

    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Watch_InText_ShowsEtagsAndWhyAKeyIsGone()
    {
        string? begun = null;
        await foreach (var message in _client.WatchAsync(new KvWatch { Prefix = Encoding.UTF8.GetBytes(_key), Initial = true }))
        {
            begun = message.Token ?? begun;
            if (message.IsInitialComplete)
                break;
        }
        var put = await _client.PutAsync(Encoding.UTF8.GetBytes(_key), "v"u8.ToArray(), new KvPutOptions { TimeToLive = TimeSpan.FromMilliseconds(1) });
        var (exitCode, output, error) = await RunAsync($"$KV watch {_key} --after {begun} --count 2 --previous");
        Assert.Equal((0, ""), (exitCode, error));
        var lines = output.Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(static line => line.Split('\t')).ToList();
        Assert.Equal(["put", _key, "v", put.Position.Etag.ToString(), ""], lines[0].Take(5));
        Assert.Equal(["delete", _key, "", "expired"], lines[1].Take(5).Where(static (_, column) => column != 3));
        Assert.Equal(36, lines[1][3].Length);
    }

    /// <summary>One of several addresses may be away.</summary>
    [ToolFact("bash")]
    public async Task Endpoints_OfWhichOneAnswers_AreEnough_AndNeedNoScheme()
    {
        var address = fixture.Cluster.AddressOf(1).Replace("http://", "", StringComparison.Ordinal);
        Assert.Equal((0, "0\n", ""), await RunAsync($"$KV count {_key} --endpoint 127.0.0.1:9,{address}"));
        Assert.Equal((0, "0\n", ""), await RunAsync($"unset KV_ENDPOINT; KVCLUSTER_ENDPOINT={address} $KV count {_key}"));
    }

    /// <summary>It printed "standard output: Broken pipe" and ended with 70, as if there was a bug.</summary>
    [ToolTheory("bash")]
    [InlineData("get")]
    [InlineData("scan")]
    public async Task Output_ThatNobodyReadsAnyMore_IsNoMistake(string command)
    {
        await _client.PutAsync(Encoding.UTF8.GetBytes(_key), new byte[1 << 20]);
        var (_, output, error) = await RunAsync($"$KV {command} {_key} | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}");
        Assert.Equal(($"{ReaderGone}\n", ""), (output, error));
    }

    [ToolTheory("script")]
    [InlineData("get", @"a\x1b[31mb")]
    [InlineData("get --raw", "a\u001b[31mb")]
    [InlineData("scan", @"a\x1b[31mb")]
    public async Task Value_OnATerminal_IsNotObeyedByIt_UnlessItIsAskedForRaw(string command, string shown)
    {
        await _client.PutAsync(_key, "a\u001b[31mb");
        var (_, output, _) = await RunAsync($"script -qec \"$KV {command} {_key}\" /dev/null < /dev/null");
        Assert.Contains(shown, output, StringComparison.Ordinal);
        (_, output, _) = await RunAsync($"$KV {command} {_key}");
        Assert.Contains("a\u001b[31mb", output, StringComparison.Ordinal);
    }

    /// <summary>A transaction that only reads was sent as a change, whose results the shard keeps, and so was refused beyond 256 KiB.</summary>
    [ToolFact("bash")]
    public async Task Transaction_ThatOnlyReads_MayReturnAsMuchAsARead()
    {
        foreach (var name in (string[])["/1", "/2"])
            await _client.PutAsync(Encoding.UTF8.GetBytes(_key + name), new byte[200_000]);
        var read = await _client.TransactAsync(new KvTransaction().If(KvCondition.Exists(Encoding.UTF8.GetBytes(_key + "/1"))).Read(_key));
        Assert.Equal(400_000, read.Results.Sum(static result => result.Entries.Sum(static entry => entry.Value.Length)));
        var write = new KvWrite().WithResults();
        write.Operations.Scan(Encoding.UTF8.GetBytes(_key), Encoding.UTF8.GetBytes(_key + "0"));
        Assert.Equal(400_000, (await _client.WriteAsync(write)).Results.Single().Entries.Sum(static entry => entry.Value.Length));
        var (exitCode, output, error) = await RunAsync($"printf '\\nget {_key}/1\\nget {_key}/2\\n' | $KV txn | wc -c");
        Assert.Equal((0, ""), (exitCode, error));
        Assert.True(int.Parse(output, CultureInfo.InvariantCulture) > 400_000, output);
        // One that changes something has an id, and its results are kept.
        var change = new KvTransaction().Read(_key);
        change.Then.Put(Encoding.UTF8.GetBytes(_key + "/3"), default);
        Assert.Equal("ANSWER_TOO_LARGE", (await Assert.ThrowsAsync<KvException>(async () => await _client.TransactAsync(change))).Reason);
    }

    /// <summary>The token of a message was printed although the count ended before its last event, so that whoever went on with it missed the rest.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Watch_ThatEndsWithinAMessage_PrintsNoTokenBehindWhatItLeavesOut()
    {
        string? begun = null;
        await foreach (var message in _client.WatchAsync(new KvWatch { Prefix = Encoding.UTF8.GetBytes(_key), Initial = true }))
        {
            begun = message.Token ?? begun;
            if (message.IsInitialComplete)
                break;
        }
        var three = new KvWrite();
        foreach (var number in (string[])["1", "2", "3"])
            three.Operations.Put(Encoding.UTF8.GetBytes(_key + number), default);
        await _client.WriteAsync(three);
        Assert.Equal([(_key + "1", null), (_key + "2", null)], await WatchAsync(begun!, 2));
        var whole = await WatchAsync(begun!, 3);
        Assert.Equal([_key + "1", _key + "2", _key + "3"], whole.Select(static happened => happened.Key));
        await _client.PutAsync(_key + "4", "");
        Assert.Equal(_key + "4", (await WatchAsync(whole[2].Token!, 1)).Single().Key);

        async Task<List<(string Key, string? Token)>> WatchAsync(string after, int count)
        {
            var (exitCode, output, error) = await RunAsync($"$KV watch {_key} --after {after} --count {count} --output json");
            Assert.Equal((0, ""), (exitCode, error));
            return [.. output.Split('\n', StringSplitOptions.RemoveEmptyEntries).Select(static line => JsonDocument.Parse(line).RootElement)
                .Select(static line => (
                    line.TryGetProperty("key", out var key) ? key.GetString()! : "",
                    line.TryGetProperty("token", out var token) ? token.GetString() : null))];
        }
    }

    /// <summary>Tokens came only with events, so that of a quiet prefix was COMPACTED when it was needed.</summary>
    [ToolFact("bash", "timeout")]
    [Trait("Turn", "3")]
    public async Task Watch_ThatIsEndedWithoutEvents_PrintsItsPosition()
    {
        var told = "";
        // Long enough for the program to begin and to hear once from the shard, which tells its position each second.
        await Eventually.LongEnoughAsync(TimeSpan.FromSeconds(3), async time =>
        {
            (var exitCode, told, var error) = await RunAsync(
                string.Create(CultureInfo.InvariantCulture, $"timeout --preserve-status --signal=TERM {time.TotalSeconds:F0} $KV watch {_key} --output json"));
            // Two seconds after the signal the program ends in any case, and says so.
            if (told.Length == 0 || error.Contains("before the command ended", StringComparison.Ordinal))
                return false;
            Assert.Equal((0, ""), (exitCode, error));
            return true;
        });
        await GoesOnAfterAsync(told.TrimEnd('\n'));
    }

    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Watch_WithBookmarks_PrintsPositionsWhileNothingChanges()
    {
        var (exitCode, output, error) = (0, "", "");
        // Two seconds after the signal the program ends in any case, and says so.
        await Eventually.TrueAsync(async () =>
        {
            (exitCode, output, error) = await RunAsync(
                $"exec 3< <(exec $KV watch {_key} --bookmarks --output json); read -r first <&3; read -r second <&3; kill -TERM $!; "
                + "printf '%s\n' \"$first\" \"$second\"; cat <&3");
            return !error.Contains("before the command ended", StringComparison.Ordinal);
        }, "the program ends soon after the signal");
        Assert.Equal((0, ""), (exitCode, error));
        var lines = output.Split('\n', StringSplitOptions.RemoveEmptyEntries);
        Assert.True(lines.Length >= 2, output);
        foreach (var line in lines)
            await GoesOnAfterAsync(line);
    }

    // A line with a position, which a watch that goes on after it takes for the one before the next change.
    private async Task GoesOnAfterAsync(string line)
    {
        var position = JsonDocument.Parse(line).RootElement;
        Assert.Equal("bookmark", position.GetProperty("kind").GetString());
        await _client.PutAsync(_key, "v");
        var (exitCode, output, error) = await RunAsync($"$KV watch {_key} --after {position.GetProperty("token").GetString()} --count 1");
        Assert.Equal((0, ""), (exitCode, error));
        Assert.StartsWith($"put\t{_key}\t", output, StringComparison.Ordinal);
    }

    /// <summary>With TLS where there is none, no call succeeds, and that is known at once.</summary>
    [ToolFact("bash")]
    [Trait("Turn", "3")]
    public async Task Placement_ThatMaySkip_SucceedsIfNothingAnswers_AndFailsIfAClusterRefuses()
    {
        const int unavailable = 3;
        var silent = fixture.Cluster.AddressOf(1).Replace("http:", "https:", StringComparison.Ordinal);
        var (exitCode, output, error) = await RunAsync($"$KV admin placement --stay-up-to 1 --wait 5 --skip-if-silent --endpoint {silent}");
        Assert.Equal((0, ""), (exitCode, error));
        Assert.StartsWith($"no cluster answers at {silent}, so nothing was changed and nothing is waited for: ", output, StringComparison.Ordinal);
        (exitCode, output, _) = await RunAsync("$KV admin placement --leave 1 --skip-if-silent");
        Assert.Equal((unavailable, ""), (exitCode, output));
    }

    [ToolFact("bash")]
    public async Task Levels_OfANewCluster_AreTheHighest_SoThereIsNothingToRaise()
    {
        await Eventually.TrueAsync(
            async () => (await _client.Admin.GetLevelsAsync()).Nodes.All(static node => node.Version.Length > 0), "the node is registered");
        var (exitCode, shown, error) = await RunAsync("$KV admin levels");
        Assert.Equal((0, ""), (exitCode, error));
        Assert.StartsWith("in force: format level 6, contract level 1\nnode 1 (version ", shown, StringComparison.Ordinal);
        Assert.EndsWith(
            "): supports format levels 1 to 6, contract levels 1 to 1; in use: format level 6, contract level 1\n", shown, StringComparison.Ordinal);
        (exitCode, var raised, error) = await RunAsync("$KV admin levels --raise");
        Assert.Equal((0, "nothing to raise, because no node supports more\n" + shown, ""), (exitCode, raised, error));
        var (_, json, _) = await RunAsync("$KV admin levels --output json");
        var document = JsonDocument.Parse(json).RootElement;
        Assert.Equal((6, false), (document.GetProperty("format_level").GetInt32(), document.GetProperty("raised").GetBoolean()));
        Assert.Equal(6, document.GetProperty("nodes")[0].GetProperty("format_levels").GetProperty("max").GetInt32());
        Assert.Equal(6, document.GetProperty("nodes")[0].GetProperty("format_in_use").GetInt32());
    }

    /// <summary>A plan ended without a verdict.</summary>
    [ToolFact("bash")]
    public async Task PlanOfARecovery_SaysThatNothingWasChanged()
    {
        var (exitCode, output, error) = (1, "", "");
        // A node that does not answer within seconds, as where the machine stalls, is a reason against the plan.
        await Eventually.TrueAsync(async () =>
        {
            (exitCode, output, error) = await RunAsync("$KV admin coordinator recover --plan");
            return exitCode == 0;
        }, () => error);
        Assert.EndsWith("nothing was changed; the same command without --plan writes this\n", output, StringComparison.Ordinal);
    }

    private Task<(int ExitCode, string Output, string Error)> RunAsync(string script) =>
        KvProcess.RunInShellAsync($"export KV_ENDPOINT={fixture.Cluster.AddressOf(1)}; {script}");
}

/// <summary>Parts of transactions.</summary>
file static class Transactions
{
    public static KvTransaction Read(this KvTransaction transaction, string key)
    {
        transaction.Then.Get(Encoding.UTF8.GetBytes(key + "/1")).Get(Encoding.UTF8.GetBytes(key + "/2"));
        return transaction;
    }
}
