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

        public void Execute()
        {
            using var model = new StoreModel(seed, StoreBench.SmallOptions with { RangeLeavesMax = 2, RangeLeavesUnreadMax = 2 });
            for (var life = 0; life < LivesPerSeed; life++)
            {
                model.Open();
                for (var index = 0; index < RequestsPerLife; index++)
                {
                    model.Submit(Fill);
                    for (var steps = _random.Next(4); steps > 0; steps--)
                        model.Bench.Step();
                    if (_random.Next(40) == 0)
                        _ = model.Bench.Store.Checkpoints.RequestAsync();
                    if (_random.Next(50) == 0)
                        model.OpenReader();
                    if (_random.Next(60) == 0 && model.Readers > 0)
                        model.CloseReader(_random.Next(model.Readers));
                    model.Settle();
                    model.Walk();
                }
                model.RunUntilIdle();
                model.Check();
                model.CloseReaders();
                model.Bench.Store.Pages.Verify();
                model.Bench.Close();
            }
        }

        private void Fill(ModelRequest request)
        {
            if (_random.Next(3) == 0)
                FillAnything(request);
            else
                FillOrdinary(request);
        }

        /// <summary>Any conditions, and one or two lists of any operations.</summary>
        private void FillAnything(ModelRequest request)
        {
            if (_random.Next(3) > 0)
                request.WantResults();
            for (var index = _random.Next(3); index > 0; index--)
                request.If(ModelRequests.SomeCondition(_random, Key, Set, Member));
            for (var index = _random.Next(5); index > 0; index--)
                request.Add(ModelRequests.SomeOperation(_random, Key, Set, Member, Value));
            if (!request.WantsResults || _random.Next(2) == 0)
                return;
            request.BeginFailureList();
            for (var index = _random.Next(4); index > 0; index--)
                request.Add(ModelRequests.SomeOperation(_random, Key, Set, Member, Value));
        }

        private void FillOrdinary(ModelRequest request)
        {
            var conditions = _random.Next(3) == 0 ? 1 + _random.Next(2) : 0;
            var isRange = _random.Next(20) == 0;
            var operations = _random.Next(10) == 0 || isRange ? 0 : 1 + _random.Next(4);
            var deletesSets = _random.Next(12) == 0;
            for (var index = 0; index < conditions; index++)
            {
                if (_random.Next(2) == 0)
                    request.IfAsKnown(Key(), (ConditionKind)_random.Next(4));
                else
                    request.If(Key(), (ConditionKind)_random.Next(4), new Etag(0, 5), Value());
            }
            if (isRange)
            {
                var ends = new[] { Key(), Key() }.Order(StringComparer.Ordinal).ToArray();
                request.DeleteRange(ends[0], ends[1]);
            }
            for (var index = 0; index < operations; index++)
            {
                switch (_random.Next(4) == 0, _random.Next(4) == 0)
                {
                    case (true, _) when deletesSets:
                        request.SetDelete(Set());
                        break;
                    case (true, true):
                        request.SetRemove(Set(), Member());
                        break;
                    case (true, false):
                        request.SetAdd(Set(), Member());
                        break;
                    case (false, true):
                        request.Delete(Key());
                        break;
                    case (false, false):
                        request.Put(Key(), Value());
                        break;
                }
            }
        }

        private string Key() => $"key/{_random.Next(20)}/{_random.Next(20)}";

        private string Set() => $"set/{_random.Next(3)}";

        private string Value() => new((char)('a' + _random.Next(26)), _random.Next(20) == 0 ? _random.Next(9000) : _random.Next(60));

        /// <summary>
        /// Some hundred members of up to 300 bytes, so that sets grow over the bound of a value, also to several leaves, and shrink below it.
        /// </summary>
        private string Member() => _random.Next(300) is var number && number < 100 ? $"m{number:d2}" : $"m{number}-{new string('m', number)}";
    }
}
