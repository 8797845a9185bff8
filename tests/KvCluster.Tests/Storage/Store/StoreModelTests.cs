using System.Text;
using KvCluster.Storage.DataFile;
using KvCluster.Storage.Encoding;
using KvCluster.Storage.Pages;
using KvCluster.Storage.Sessions;
using KvCluster.Storage.Transactions;
using Xunit.Abstractions;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// Compares the whole engine with a sorted dictionary: random requests with conditions in random batches, readers that stay open, checkpoints at any
/// moment, closing without warning and reopening. KV_SEED repeats a run, KV_LONG=1 makes many.
/// </summary>
public sealed class StoreModelTests(ITestOutputHelper output)
{
    private const int RequestsPerLife = 400;
    private const int LivesPerSeed = 5;

    [Fact]
    public void Store_UnderRandomRequests_AgreesWithTheModel()
    {
        var first = Seeds.Given ?? Random.Shared.Next(1_000_000);
        var count = Seeds.Given is not null ? 1 : Seeds.IsLong ? 200 : 4;
        for (var seed = first; seed < first + count; seed++)
        {
            output.WriteLine($"KV_SEED={seed}");
            new Run(seed).Execute();
        }
    }

    private sealed class Run(int seed)
    {
        private readonly Random _random = new(seed);
        private readonly SortedDictionary<string, (string Value, Etag Etag)> _model = new(StringComparer.Ordinal);
        private readonly SortedDictionary<string, (SortedSet<string> Members, Etag Etag)> _sets = new(StringComparer.Ordinal);
        private readonly List<(ReadSnapshot Snapshot, string Expected)> _readers = [];
        private readonly Queue<Expectation> _expected = new();

        public void Execute()
        {
            using var bench = new StoreBench(seed: seed, options: StoreBench.SmallOptions with { RangeLeavesMax = 2 });
            for (var life = 0; life < LivesPerSeed; life++)
            {
                bench.Open();
                Assert.Equal(ModelText(), Text(bench));
                for (var index = 0; index < RequestsPerLife; index++)
                {
                    Submit(bench);
                    for (var steps = _random.Next(4); steps > 0; steps--)
                        bench.Step();
                    if (_random.Next(40) == 0)
                        _ = bench.Store.Checkpoints.RequestAsync();
                    if (_random.Next(50) == 0)
                        OpenReader(bench);
                    if (_random.Next(60) == 0)
                        CloseReader();
                    Settle();
                }
                bench.RunUntilIdle();
                Settle();
                Assert.Empty(_expected);
                Assert.Equal(ModelText(), Text(bench));
                Assert.Equal((ulong)_model.Count, bench.Store.Statistics.Keys);
                while (_readers.Count > 0)
                    CloseReader();
                bench.Store.Pages.Verify();
                bench.Close();
            }
        }

        /// <summary>Submits a request. Its change is made in the model when its answer comes; answers come in the order of submission.</summary>
        private void Submit(StoreBench bench)
        {
            var conditions = _random.Next(3) == 0 ? 1 + _random.Next(2) : 0;
            var isRange = _random.Next(20) == 0;
            var operations = _random.Next(10) == 0 || isRange ? 0 : 1 + _random.Next(4);
            var expectation = new Expectation();
            var answer = bench.Submit(request =>
            {
                for (var index = 0; index < conditions; index++)
                {
                    var condition = (Key(), (ConditionKind)_random.Next(4), Value(), UseLast: _random.Next(2) == 0);
                    var known = _model.GetValueOrDefault(condition.Item1);
                    var value = condition.UseLast ? known.Value ?? "" : condition.Item3;
                    var etag = condition.UseLast ? known.Etag : new Etag(0, 5);
                    request.AddCondition(StoreBench.Text(condition.Item1), condition.Item2, etag, StoreBench.Text(value));
                    expectation.Conditions.Add((condition.Item1, condition.Item2, etag, value));
                }
                if (isRange)
                {
                    var ends = new[] { Key(), Key() }.Order(StringComparer.Ordinal).ToArray();
                    request.DeleteRange(StoreBench.Text(ends[0]), StoreBench.Text(ends[1]));
                    expectation.Range = (ends[0], ends[1]);
                }
                for (var index = 0; index < operations; index++)
                {
                    var key = Key();
                    var value = _random.Next(4) == 0 ? null : Value();
                    var (isOnSet, isRemoval) = (_random.Next(4) == 0, value is null);
                    if (isOnSet)
                        (key, value) = ($"set/{_random.Next(3)}", Member());
                    OperationCode code;
                    switch (isOnSet, isRemoval)
                    {
                        case (true, true):
                            code = OperationCode.SetRemove;
                            request.SetRemove(StoreBench.Text(key), StoreBench.Text(value!));
                            break;
                        case (true, false):
                            code = OperationCode.SetAdd;
                            request.SetAdd(StoreBench.Text(key), StoreBench.Text(value!));
                            break;
                        case (false, true):
                            code = OperationCode.Delete;
                            request.Delete(StoreBench.Text(key));
                            break;
                        case (false, false):
                            code = OperationCode.Put;
                            request.Put(StoreBench.Text(key), StoreBench.Text(value!));
                            break;
                    }
                    expectation.Operations.Add((code, key, value));
                }
            });
            expectation.Answer = answer;
            _expected.Enqueue(expectation);
        }

        private void Settle()
        {
            while (_expected.TryPeek(out var expectation) && expectation.Answer!.IsCompleted)
            {
                _expected.Dequeue();
                var result = StoreBench.Answer(expectation.Answer);
                var failed = expectation.Conditions.FindIndex(condition => !Holds(condition));
                Assert.Equal(failed, result.FailedCondition);
                Assert.Equal(failed < 0 ? WriteOutcome.Applied : WriteOutcome.ConditionFailed, result.Outcome);
                if (failed < 0)
                    Apply(expectation, result);
            }
        }

        private bool Holds((string Key, ConditionKind Kind, Etag Etag, string Value) condition)
        {
            var exists = _model.TryGetValue(condition.Key, out var known);
            return condition.Kind switch
            {
                ConditionKind.Absent => !exists,
                ConditionKind.Exists => exists,
                ConditionKind.EtagEquals => known.Etag == condition.Etag,
                _ => exists && known.Value == condition.Value,
            };
        }

        private void Apply(Expectation expectation, WriteResult result)
        {
            if (expectation.Range is { } range)
            {
                DeleteRange(range.From, range.To, result);
                return;
            }
            var existed = false;
            var etag = result.Etag with { Change = result.Etag.Change - (ulong)expectation.Operations.Count };
            foreach (var (code, key, value) in expectation.Operations)
            {
                etag++;
                if (code is OperationCode.SetAdd or OperationCode.SetRemove)
                    ChangeSet(key, value!, code == OperationCode.SetAdd, etag);
                else if (value is null)
                    existed |= _model.Remove(key);
                else
                    _model[key] = (value, etag);
            }
            Assert.Equal(existed, result.Existed);
        }

        private void ChangeSet(string key, string member, bool isAdded, Etag etag)
        {
            var members = _sets.TryGetValue(key, out var set) ? set.Members : new SortedSet<string>(StringComparer.Ordinal);
            if (isAdded ? members.Add(member) : members.Remove(member))
                _sets[key] = (members, etag);
            if (members.Count == 0)
                _sets.Remove(key);
        }

        /// <summary>The keys of a range, or the first of them if not all.</summary>
        private void DeleteRange(string from, string to, WriteResult result)
        {
            var keys = _model.Keys.Where(key => string.CompareOrdinal(key, from) >= 0 && string.CompareOrdinal(key, to) < 0).ToArray();
            Assert.InRange(result.Deleted, result.IsPartial ? 1 : keys.Length, keys.Length);
            foreach (var key in keys.Take(result.Deleted))
                _model.Remove(key);
        }

        private void OpenReader(StoreBench bench)
        {
            var snapshot = bench.Standalone.OpenSnapshot();
            _readers.Add((snapshot, Text(snapshot)));
        }

        private void CloseReader()
        {
            if (_readers.Count == 0)
                return;
            var index = _random.Next(_readers.Count);
            using (var snapshot = _readers[index].Snapshot)
                Assert.Equal(_readers[index].Expected, Text(snapshot));
            _readers.RemoveAt(index);
        }

        /// <summary>Some hundred members of up to 150 bytes, so that sets grow over the bound of a value and shrink below it.</summary>
        private string Member() => _random.Next(150) is var number && number < 100 ? $"m{number:d2}" : $"m{number}-{new string('m', number)}";

        private string ModelText() =>
            Text(_model.Select(pair => (pair.Key, pair.Value.Value, pair.Value.Etag)).Concat(_sets.Select(set => (set.Key, string.Join(' ', set.Value.Members), set.Value.Etag))));

        private string Key() => $"key/{_random.Next(20)}/{_random.Next(20)}";

        private string Value() => new((char)('a' + _random.Next(26)), _random.Next(20) == 0 ? _random.Next(9000) : _random.Next(60));

        private static string Text(StoreBench bench)
        {
            using var snapshot = bench.Standalone.OpenSnapshot();
            return Text(snapshot);
        }

        private static string Text(ReadSnapshot snapshot)
        {
            var items = new List<(string, string, Etag)>();
            using var cursor = snapshot.Cursor(TreeId.Kv);
            while (cursor.MoveNext())
            {
                var value = Encoding.UTF8.GetString(KvValue.Read(cursor.Value, out var etag));
                items.Add((Encoding.UTF8.GetString(cursor.Key), value, etag));
            }
            foreach (var (key, members) in StoreBench.SetsOf(snapshot))
            {
                Assert.True(snapshot.TryGetSet(StoreBench.Text(key), out var set));
                items.Add((key, members, set.Etag));
            }
            return Text(items);
        }

        private static string Text(IEnumerable<(string Key, string Value, Etag Etag)> items) =>
            string.Join('\n', items.Select(item => $"{item.Key} = {item.Value} @ {item.Etag}"));
    }

    private sealed class Expectation
    {
        public List<(string Key, ConditionKind Kind, Etag Etag, string Value)> Conditions { get; } = [];

        /// <summary>For an operation on a set the value is the member; for a delete it is null.</summary>
        public List<(OperationCode Code, string Key, string? Value)> Operations { get; } = [];

        public (string From, string To)? Range { get; set; }

        public Task<WriteResult>? Answer { get; set; }
    }
}
