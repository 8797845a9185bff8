using System.Text;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>Operations of requests that depend on the state or the time, what they answer, and that a request which fails leaves nothing behind.</summary>
public sealed class RequestTests : IDisposable
{
    private readonly ReplicaBench _bench = new(new(1));

    public RequestTests()
    {
        _bench.Lead(3);
        _bench.Commit(_bench.Store.Log.Last.Etag);
    }

    public void Dispose() => _bench.Dispose();

    [Fact]
    public void Increment_OfAnAbsentKeyAndOfItsOwnResult_Adds()
    {
        var result = Apply(request =>
        {
            request.Increment("n"u8, 5);
            request.Increment("n"u8, -7);
            request.Get("n"u8);
        });
        Assert.Equal(
            [
                ModelOperation.ResultOf(new Etag(3, 2), number: 5),
                ModelOperation.ResultOf(new Etag(3, 3), number: -2),
                ModelOperation.ResultOf(null, entries: ("n", "-2", new Etag(3, 3))),
            ],
            ModelOperation.ResultsOf(result.Results!));
        Assert.Equal((WriteOutcome.Applied, new Etag(3, 3), "-2"), (result.Outcome, result.Etag, _bench.Read("n")));
    }

    [Theory]
    [InlineData("", false)]
    [InlineData("x", false)]
    [InlineData("+1", false)]
    [InlineData("1 ", false)]
    [InlineData("9223372036854775808", false)]
    [InlineData("000000000000000000001", false)]
    [InlineData("-0", true)]
    [InlineData("007", true)]
    [InlineData("-9223372036854775808", true)]
    public void Increment_OfText_IsRefusedUnlessItIsANumber(string text, bool isNumber)
    {
        Apply(request => request.Put("n"u8, StoreBench.Text(text)));
        Assert.Equal(isNumber ? WriteOutcome.Applied : WriteOutcome.NotANumber, Apply(request => request.Increment("n"u8, 1)).Outcome);
    }

    [Fact]
    public void Request_WhoseLastOperationFails_LeavesNothingAndTakesNoChange()
    {
        Apply(request => request.Put("text"u8, "x"u8));
        Apply(request => request.Put("greatest"u8, StoreBench.Text($"{long.MaxValue}")));
        var (digest, last) = (_bench.Digest(), _bench.Store.Log.Last);
        (WriteOutcome Outcome, Action<WriteRequest> Last)[] failures =
        [
            (WriteOutcome.NotANumber, static request => request.Increment("text"u8, 1)),
            (WriteOutcome.NumberOverflow, static request => request.Increment("greatest"u8, 1)),
            (WriteOutcome.NoOwner, static request => request.Put("owned"u8, "v"u8, new PutTerms(0, 77, false))),
            (WriteOutcome.NotANumber, static request =>
            {
                request.Put("greatest"u8, "no more"u8);
                request.Increment("greatest"u8, 1);
            }),
            (WriteOutcome.NotANumber, static request =>
            {
                request.Put("p/"u8, "text"u8, new PutTerms(0, 0, true));
                request.Increment("p/00000000000000000002"u8, 1);
            }),
        ];
        foreach (var (outcome, fail) in failures)
        {
            var answer = _bench.Submit(request =>
            {
                request.WantsResults = true;
                request.Put("a"u8, "1"u8);
                request.SetAdd("s"u8, "m"u8);
                request.Put("p/"u8, "1"u8, new PutTerms(0, 0, true));
                request.Increment("a"u8, 1);
                fail(request);
            });
            Assert.False(_bench.AppendBatch());
            Assert.Equal((outcome, last.Etag), (StoreBench.Answer(answer).Outcome, StoreBench.Answer(answer).Etag));
        }
        Assert.Equal(digest, _bench.Digest());
        Assert.Equal(last, _bench.Store.Log.Last);
    }

    [Fact]
    public void Increment_SeesWhatTheRequestDidBefore()
    {
        Apply(request => request.Put("n"u8, "text"u8));
        var results = ResultsOf(request =>
        {
            request.Delete("n"u8);
            request.Increment("n"u8, 1);
            request.Put("n"u8, "10"u8);
            request.Increment("n"u8, 1);
            request.DeleteRange("m"u8, "o"u8);
            request.Increment("n"u8, 1);
            request.Put("p"u8, "20"u8, new PutTerms(0, 0, true));
            request.Increment("p00000000000000000001"u8, 1);
        });
        Assert.Equal(
            [1L, 11, 1, 21],
            results.Where(static (_, index) => index % 2 == 1)
                .Select(static text => long.Parse(text.Split(' ')[4], System.Globalization.CultureInfo.InvariantCulture)));
        Assert.Equal(("1", "21"), (_bench.Read("n"), _bench.Read("p00000000000000000001")));
    }

    [Fact]
    public void PutWithTtl_ExpiresByShardTime_AndNoLaterThanInAHundredYears()
    {
        Apply(request => request.Put("a"u8, "v"u8, new PutTerms(60_000, 0, false)));
        Apply(request => request.Put("b"u8, "v"u8, new PutTerms(ulong.MaxValue, 0, false)));
        var now = (ulong)(ReplicaBench.WallTime - DateTimeOffset.UnixEpoch).TotalMilliseconds;
        Assert.Equal((now + 60_000, now + KvLimits.TtlMillisecondsMax), (LifeOf("a").ExpiryMilliseconds, LifeOf("b").ExpiryMilliseconds));
    }

    [Fact]
    public void Increment_KeepsTheExpiry_AndAnOrdinaryPutDoesNot()
    {
        Apply(request => request.Put("n"u8, "1"u8, new PutTerms(60_000, 0, false)));
        var life = LifeOf("n");
        Apply(request => request.Increment("n"u8, 1));
        Assert.Equal(life, LifeOf("n"));
        Apply(request => request.Put("n"u8, "1"u8));
        Assert.Equal(default, LifeOf("n"));
    }

    [Fact]
    public void PutThatKeeps_TakesTheMomentOfExpiryIntoItsRecord_AndNothingOfAKeyThatIsAbsent()
    {
        Apply(request => request.Put("k"u8, "1"u8, new PutTerms(60_000, 0, false)));
        var life = LifeOf("k");
        Apply(request =>
        {
            request.Put("k"u8, "2"u8, new PutTerms(0, 0, false, KeepsExpiry: true, KeepsOwner: true));
            request.Put("new"u8, "2"u8, new PutTerms(0, 0, false, KeepsExpiry: true, KeepsOwner: true));
        });
        Assert.Equal(("2", life, default), (_bench.Read("k"), LifeOf("k"), LifeOf("new")));
        // The operations before it count, and those of the same record that are not applied yet.
        Apply(request =>
        {
            request.Touch("k"u8, 90_000);
            request.Put("k"u8, "3"u8, new PutTerms(0, 0, false, KeepsExpiry: true));
            request.Put("new"u8, "3"u8);
        });
        Assert.Equal(("3", life with { ExpiryMilliseconds = life.ExpiryMilliseconds + 30_000 }), (_bench.Read("k"), LifeOf("k")));
        Apply(request =>
        {
            request.DeleteRange("k"u8, "l"u8);
            request.Put("k"u8, "4"u8, new PutTerms(0, 0, false, KeepsExpiry: true));
        });
        Assert.Equal(("4", default(KeyLife)), (_bench.Read("k"), LifeOf("k")));
    }

    [Fact]
    public void PutWithAnOwner_HasTheEtagOfItsOpening_AndSoHasANumberAfterAnIncrement()
    {
        var opened = Apply(static request => request.OpenSession(9, ReplicaBench.Owner, lifetimeMilliseconds: 10_000));
        Apply(request => request.Put("n"u8, "1"u8, new PutTerms(0, 9, false)));
        Assert.Equal(new KeyLife(0, opened.Etag), LifeOf("n"));
        Apply(request => request.Increment("n"u8, 1));
        Assert.Equal(new KeyLife(0, opened.Etag), LifeOf("n"));
        Assert.Equal(1, Apply(static request => request.EndSession(9)).Deleted);
        Assert.Equal((WriteOutcome.NoOwner, null), (Apply(request => request.Put("n"u8, "1"u8, new PutTerms(0, 9, false))).Outcome, _bench.Read("n")));
    }

    [Fact]
    public void Touch_SetsAndRemovesTheExpiry_AndKeepsValueAndEtag()
    {
        var put = Apply(request => request.Put("k"u8, "v"u8));
        var results = ResultsOf(request =>
        {
            request.Touch("k"u8, 60_000);
            request.Touch("absent"u8, 60_000);
            request.Get("k"u8);
        });
        Assert.Equal(
            [
                ModelOperation.ResultOf(put.Etag with { Change = put.Etag.Change + 1 }, existed: true),
                ModelOperation.ResultOf(null, existed: false),
                ModelOperation.ResultOf(null, entries: ("k", "v", put.Etag)),
            ],
            results);
        Assert.NotEqual(0ul, LifeOf("k").ExpiryMilliseconds);
        Apply(request => request.Touch("k"u8, 0));
        Assert.Equal(default, LifeOf("k"));
    }

    /// <summary>Ten thousand touches of one large value took the writer for as long as eighty gigabytes take to be copied.</summary>
    [Theory]
    [InlineData(true)]
    [InlineData(false)]
    public void Touches_OfValuesThatAreTooLargeTogether_AreRefused(bool isStored)
    {
        var value = new byte[1 << 20];
        if (isStored)
            Apply(request => request.Put("k"u8, value));
        var last = _bench.Store.Log.Last;
        Assert.Equal(WriteOutcome.RangeTooLarge, Touch(times: 16).Outcome);
        Assert.Equal(last, _bench.Store.Log.Last);
        Assert.Equal(WriteOutcome.Applied, Touch(times: 15).Outcome);

        WriteResult Touch(int times) => Apply(request =>
        {
            if (!isStored)
                request.Put("k"u8, value);
            for (var time = 1; time <= times; time++)
                request.Touch("k"u8, (ulong)time * 60_000);
            // A value and its header are more than a mebibyte.
            request.Touch("absent"u8, 0);
            if (!isStored && times > 15)
                request.Touch("k"u8, 60_000);
        });
    }

    [Fact]
    public void NumberedPuts_CountUnderTheirPrefix_AndGiveNoNumberTwice()
    {
        var terms = new PutTerms(0, 0, true);
        var first = ResultsOf(request =>
        {
            request.Put("q/"u8, "a"u8, terms);
            request.Put("r/"u8, "b"u8, terms);
            request.Put("q/"u8, "c"u8, terms);
        });
        Assert.Equal(["q/00000000000000000001", "r/00000000000000000001", "q/00000000000000000002"], first.Select(KeyOf));
        Apply(request => request.DeleteRange("q/"u8, []));
        Assert.Equal("q/00000000000000000003", KeyOf(Assert.Single(ResultsOf(request => request.Put("q/"u8, "d"u8, terms)))));
        _bench.Store.Log.WriteControl(_bench.Store.Durable.Control with { Committed = _bench.Store.Log.Last.Etag });
        _bench.Run();
        _bench.Reopen();
        _bench.Lead(4);
        _bench.Commit(_bench.Store.Log.Last.Etag);
        _bench.Run();
        Assert.Equal("q/00000000000000000004", KeyOf(Assert.Single(ResultsOf(request => request.Put("q/"u8, "e"u8, terms)))));

        static string KeyOf(string result) => result[(result.IndexOf('[', StringComparison.Ordinal) + 1)..].Split(' ')[0];
    }

    [Fact]
    public void SetChangesWithoutEffect_TakeNoChange_AndSayWhatIsThere()
    {
        Apply(request => request.SetAdd("s"u8, "a"u8));
        var last = _bench.Store.Log.Last;
        var results = ResultsOf(request =>
        {
            request.SetAdd("s"u8, "a"u8);
            request.SetRemove("s"u8, "b"u8);
            request.SetDelete("none"u8);
            request.SetGet("s"u8, "a"u8);
            request.SetGet("s"u8, []);
        });
        Assert.Equal(
            [
                ModelOperation.ResultOf(null, existed: true, number: 1),
                ModelOperation.ResultOf(null, existed: false, number: 1),
                ModelOperation.ResultOf(null, number: 0),
                ModelOperation.ResultOf(null, existed: true, number: 1),
                ModelOperation.ResultOf(null, number: 1),
            ],
            results);
        Assert.Equal(last, _bench.Store.Log.Last);
    }

    [Fact]
    public void MembersCounted_AreThoseThatWereChanged_WithoutResults()
    {
        var added = Apply(request =>
        {
            request.CountsMembers = true;
            foreach (var member in (string[])["a", "b", "a", "c"])
                request.SetAdd("s"u8, StoreBench.Text(member));
        });
        Assert.Equal((3, new Etag(3, 4), true), (added.Deleted, added.Etag, added.Results is null));
        var removed = Apply(request =>
        {
            request.CountsMembers = true;
            request.SetDelete("s"u8);
        });
        Assert.Equal(3, removed.Deleted);
    }

    [Fact]
    public void Transact_AppliesOneListOrTheOther_AndSaysWhichConditionFailed()
    {
        Action<WriteRequest> transact = static request =>
        {
            request.WantsResults = true;
            request.AddCondition("a"u8, ConditionKind.Absent);
            request.AddCondition("b"u8, ConditionKind.Absent);
            request.Put("b"u8, "1"u8);
            request.BeginFailureList();
            request.Get("b"u8);
            request.Put("c"u8, "2"u8);
        };
        var succeeded = _bench.Append(transact);
        Assert.Equal((WriteOutcome.Applied, -1, 1), (succeeded.Outcome, succeeded.FailedCondition, ModelOperation.ResultsOf(succeeded.Results!).Count));
        var failed = _bench.Append(transact);
        Assert.Equal((WriteOutcome.Applied, 1, 2), (failed.Outcome, failed.FailedCondition, ModelOperation.ResultsOf(failed.Results!).Count));
        Assert.Equal(("1", "2"), (_bench.Read("b"), _bench.Read("c")));
    }

    [Fact]
    public void Transact_ThatOnlyReads_IsAReadAnswer_HeldWithoutALease()
    {
        _bench.AnswersReads = false;
        var last = _bench.Store.Log.Last;
        var answer = _bench.Submit(static request =>
        {
            request.WantsResults = true;
            request.Get("a"u8);
            request.BeginFailureList();
            request.Put("a"u8, "1"u8);
        });
        Assert.False(_bench.AppendBatch());
        Assert.False(answer.IsCompleted);
        _bench.Store.Writes.ReleaseReadAnswers(_bench.Store.Writes.HeldReadAnswers);
        _bench.Run();
        Assert.Equal((WriteOutcome.Applied, last.Etag), (StoreBench.Answer(answer).Outcome, StoreBench.Answer(answer).Etag));
    }

    [Fact]
    public void Scan_StopsAtItsLimit_AndSaysWhetherMoreFollows()
    {
        Apply(request =>
        {
            for (var key = 0; key < 5; key++)
                request.Put(StoreBench.Text($"k{key}"), "v"u8);
        });
        var results = ResultsOf(request =>
        {
            request.Scan("k1"u8, "k4"u8, 2, keysOnly: true);
            request.Scan("k1"u8, "k4"u8, 3, keysOnly: true);
            request.Scan([], [], 1_000, keysOnly: false);
            request.Scan("x"u8, [], 1, keysOnly: false);
        });
        Assert.Equal(
            [(2, true), (3, false), (5, false), (0, false)],
            results.Select(static text => (text.Split(" @ ").Length - 1, text.Contains("more True", StringComparison.Ordinal))));
    }

    [Fact]
    public void Results_OfMoreThanTheirBound_AreRefused_AndNothingIsApplied()
    {
        var value = new byte[1 << 20];
        for (var key = 0; key < 5; key++)
            Apply(request => request.Put(StoreBench.Text($"k{key}"), value));
        var last = _bench.Store.Log.Last;
        foreach (var changes in (bool[])[false, true])
        {
            var answer = _bench.Submit(request =>
            {
                request.WantsResults = true;
                if (changes)
                    request.Put("other"u8, "v"u8);
                request.Scan([], [], 10, keysOnly: false);
            });
            Assert.False(_bench.AppendBatch());
            Assert.Equal((WriteOutcome.ResultsTooLarge, last), (StoreBench.Answer(answer).Outcome, _bench.Store.Log.Last));
        }
        // What is deleted before is not counted, and keys alone are few bytes.
        Assert.Equal(WriteOutcome.Applied, Apply(request =>
        {
            request.WantsResults = true;
            request.Scan([], [], 10, keysOnly: true);
            request.DeleteRange("k1"u8, "k5"u8);
            request.Scan([], [], 10, keysOnly: false);
        }).Outcome);
    }

    [Fact]
    public void RangeCondition_SeesEveryChangeOfTheRange_AndItsFirstKey()
    {
        var first = Apply(request => request.Put("b"u8, "v"u8)).Etag;
        var last = Apply(request => request.Put("c"u8, "v"u8)).Etag;
        Assert.True(Holds("b"u8, "d"u8, 2, last));
        Assert.True(Holds("b"u8, "c"u8, 1, first));
        Assert.True(Holds("x"u8, [], 0, Etag.None));
        Assert.True(Holds([], [], 2, null));
        Assert.True(Holds([], [], null, last));
        Assert.False(Holds("b"u8, "d"u8, 1, null));
        Assert.False(Holds("b"u8, "d"u8, 3, null));
        Assert.False(Holds("b"u8, "d"u8, null, first));
        Assert.False(Holds("x"u8, [], null, last));
        Apply(request => request.Put("b"u8, "w"u8));
        Assert.False(Holds("b"u8, "d"u8, 2, last));
    }

    [Fact]
    public void RangeConditions_OfMoreKeysThanAreRead_AreRefused_UnlessTheAnswerIsKnownBefore()
    {
        for (var part = 0; part < 2; part++)
        {
            Apply(request =>
            {
                for (var key = 0; key < 5_001; key++)
                    request.Put(StoreBench.Text($"{part}-{key}"), []);
            });
        }
        Assert.Equal(WriteOutcome.RangeTooLarge, Conditional([], [], 10_002, new Etag(9, 9)).Outcome);
        Assert.Equal(WriteOutcome.ConditionFailed, Conditional([], [], 3, new Etag(9, 9)).Outcome);
        Assert.Equal(WriteOutcome.ConditionFailed, Conditional([], [], null, new Etag(1, 1)).Outcome);
        // Their number alone is known without reading them.
        Assert.Equal(WriteOutcome.Applied, Conditional([], [], 10_002, null).Outcome);
    }

    [Fact]
    public void DeleteOfARangeInParts_SaysWhereItGoesOn()
    {
        using var bench = new ReplicaBench(new(1), StoreBench.SmallOptions with { RangeLeavesMax = 1 });
        bench.Lead(3);
        bench.Append(request =>
        {
            for (var key = 0; key < 200; key++)
                request.Put(StoreBench.Text($"k{key:d3}"), new byte[200]);
        });
        var (from, deleted) = (Array.Empty<byte>(), 0L);
        for (var more = true; more;)
        {
            var result = bench.Append(request =>
            {
                request.WantsResults = true;
                request.DeleteRange(from, []);
            });
            var reader = new OperationResultReader(result.Results);
            Assert.True(reader.MoveNext());
            deleted += reader.Number!.Value;
            more = reader.More;
            Assert.Equal((more, result.Deleted), (result.IsPartial, (int)reader.Number));
            if (more)
                Assert.True(reader.MoveToEntry());
            from = reader.EntryKey.ToArray();
            if (more)
                Assert.Equal($"k{deleted:d3}", Encoding.UTF8.GetString(from));
        }
        Assert.Equal(200, deleted);
    }

    [Fact]
    public void Request_OfMoreOperationsThanResults_IsRefusedWhileItIsFilled()
    {
        foreach (var fill in (Action<WriteRequest>[])[static request => request.WantsResults = true, static request => request.Increment("n"u8, 1)])
        {
            var request = WriteRequest.Rent();
            fill(request);
            Assert.Throws<ArgumentOutOfRangeException>(() =>
            {
                for (var index = 0; index <= KvLimits.ResultsMax; index++)
                    request.Delete("k"u8);
            });
            request.Return();
        }
    }

    private bool Holds(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ulong? keys, Etag? greatest) =>
        Conditional(from, to, keys, greatest).Outcome == WriteOutcome.Applied;

    private WriteResult Conditional(ReadOnlySpan<byte> from, ReadOnlySpan<byte> to, ulong? keys, Etag? greatest)
    {
        var (first, end) = (from.ToArray(), to.ToArray());
        var answer = _bench.Submit(request => request.AddRangeCondition(first, end, keys, greatest));
        Assert.False(_bench.AppendBatch());
        return StoreBench.Answer(answer);
    }

    private WriteResult Apply(Action<WriteRequest> fill)
    {
        var answer = _bench.Submit(request =>
        {
            fill(request);
            request.WantsResults |= request is { IsExecuted: true, CountsMembers: false };
        });
        _bench.AppendBatch();
        _bench.Commit(_bench.Store.Log.Last.Etag);
        _bench.Run();
        return StoreBench.Answer(answer);
    }

    private List<string> ResultsOf(Action<WriteRequest> fill)
    {
        var result = Apply(request =>
        {
            request.WantsResults = true;
            fill(request);
        });
        Assert.Equal(WriteOutcome.Applied, result.Outcome);
        return ModelOperation.ResultsOf(result.Results!);
    }

    private KeyLife LifeOf(string key)
    {
        using var snapshot = _bench.Store.OpenSnapshot();
        Assert.True(snapshot.TryGet(TreeId.Kv, StoreBench.Text(key), out var stored));
        _ = KvValue.Read(stored, out _, out var life);
        return life;
    }
}
